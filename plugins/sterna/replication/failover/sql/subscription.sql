-- How a region follows the primary. The slot was made before, with a snapshot from which the region was seeded: nothing is copied twice,
-- and from the first moment the region shows one state that the primary had. It is enabled once its place in the log is set. `streaming` stays off: transactions of Nessie are small.
-- `disable_on_error` is off: the apply worker retries until the obstacle is gone.
CREATE SUBSCRIPTION sterna CONNECTION {conninfo} PUBLICATION sterna
    WITH (slot_name = {slot}, create_slot = false, copy_data = false, enabled = false, origin = any);
