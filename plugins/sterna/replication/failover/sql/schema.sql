-- The tables of a region's catalog, as Nessie 0.99 makes them (version store JDBC2), and what sterna adds. Run by a superuser in the
-- database of every region; safe to repeat. `{role}` is the login of the region's Nessie servers.

-- A copy's Nessie can't make its own tables: they have to exist before the copy is filled, and the server starts after that.
CREATE TABLE IF NOT EXISTS refs2 (
    repo character varying NOT NULL COLLATE pg_catalog.ucs_basic,
    ref_name character varying NOT NULL COLLATE pg_catalog.ucs_basic,
    pointer bytea,
    deleted boolean,
    created_at bigint DEFAULT 0,
    ext_info bytea,
    prev_ptr bytea,
    PRIMARY KEY (repo, ref_name)
);
CREATE TABLE IF NOT EXISTS objs2 (
    repo character varying NOT NULL COLLATE pg_catalog.ucs_basic,
    obj_id bytea NOT NULL,
    obj_type character varying COLLATE pg_catalog.ucs_basic,
    obj_vers character varying COLLATE pg_catalog.ucs_basic,
    obj_value bytea,
    obj_ref bigint,
    PRIMARY KEY (repo, obj_id)
);

-- The primaries, with the start and each reference's hash at that moment: what an old primary has beyond it was lost.
-- Replicated with the catalog itself, so that each region has the newest epoch that its own copy received.
CREATE TABLE IF NOT EXISTS sterna_epoch (
    epoch integer NOT NULL,
    region text NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    heads jsonb NOT NULL,
    PRIMARY KEY (epoch, region)
);

-- An owner can give itself any right again; Nessie's login must not be able to undo a fence. Only where there is something to change:
-- it takes a lock that waits for every reader, a dump for example, and all of Nessie's requests wait behind it.
DO $$
DECLARE
    ours text;
BEGIN
    FOREACH ours IN ARRAY ARRAY['refs2', 'objs2', 'sterna_epoch'] LOOP
        IF (SELECT relowner FROM pg_class WHERE oid = ours::regclass) <> CURRENT_USER::regrole THEN
            EXECUTE 'ALTER TABLE ' || ours || ' OWNER TO CURRENT_USER';
        END IF;
    END LOOP;
END
$$;
-- Objects are content-addressed. Iceberg REST makes some of its own also where it only reads: its caches, by content.
GRANT SELECT, INSERT, UPDATE, DELETE ON objs2 TO {role};
GRANT SELECT ON refs2, sterna_epoch TO {role};

-- The apply worker of a subscription stops at a row that is there already. An object that this region's REST made is the same
-- object under the same id: it is passed over.
CREATE OR REPLACE FUNCTION sterna_pass_over() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM objs2 WHERE repo = NEW.repo AND obj_id = NEW.obj_id) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END
$$;
-- REPLICA: it fires for the apply worker and the seed alone, never for Nessie's own inserts. Made once: it takes a lock, too.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_trigger WHERE tgrelid = 'objs2'::regclass AND tgname = 'sterna_pass_over' AND tgenabled = 'R'
    ) THEN
        CREATE OR REPLACE TRIGGER sterna_pass_over BEFORE INSERT ON objs2 FOR EACH ROW EXECUTE FUNCTION sterna_pass_over();
        ALTER TABLE objs2 ENABLE REPLICA TRIGGER sterna_pass_over;
    END IF;
END
$$;
