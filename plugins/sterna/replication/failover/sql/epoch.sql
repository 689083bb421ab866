-- A new primary and each reference's hash at this moment; in one transaction with the right to write (unfence.sql), so that
-- no commit belongs to two epochs.
INSERT INTO sterna_epoch (epoch, region, heads)
SELECT {epoch}, {region}, coalesce(jsonb_object_agg(ref_name, encode(pointer, 'hex')) FILTER (WHERE deleted IS NOT TRUE), '{{}}')
FROM refs2 WHERE ref_name LIKE 'refs/%'
ON CONFLICT DO NOTHING;
