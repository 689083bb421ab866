"""Position deletes and deletion vectors: their localized copies, a module a format behind `position_deletes`."""
