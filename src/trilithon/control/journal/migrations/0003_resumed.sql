-- When the owner of a job last asked to start it again: a job that failed before is started once more.
ALTER TABLE job ADD COLUMN resumed_s REAL;
