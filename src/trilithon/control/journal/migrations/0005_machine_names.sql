-- The machines that a request names, as a JSON list; empty where the policy chooses them.
ALTER TABLE request ADD COLUMN machine_names TEXT NOT NULL DEFAULT '[]';
