-- Which facets of a job's wanted state an action changes, as a JSON list of abilities.
ALTER TABLE action ADD COLUMN facets TEXT NOT NULL DEFAULT '[]';
-- Rounds are asked for by number: what became of the latest decisions is told to the policy.
CREATE INDEX decision_by_round ON decision (round);
