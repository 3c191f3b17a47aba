-- Times are seconds since 1970. Bodies are JSON.

CREATE TABLE job (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    mode TEXT NOT NULL CHECK (mode IN ('auto', 'advise', 'off')),
    -- What its owner wants. A row stays after a deletion, for its history and its generations.
    wish TEXT NOT NULL CHECK (wish IN ('run', 'pause', 'delete')),
    accepted_s REAL NOT NULL,
    changed_s REAL,
    gone_s REAL
) STRICT;

CREATE TABLE spec (
    job TEXT NOT NULL REFERENCES job (id),
    generation INTEGER NOT NULL,
    body TEXT NOT NULL,
    -- The name of the checkpoint that it goes on from.
    checkpoint TEXT NOT NULL,
    accepted_s REAL NOT NULL,
    standing TEXT NOT NULL CHECK (standing IN ('wanted', 'good', 'failed', 'past')),
    told TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (job, generation)
) STRICT;

CREATE TABLE allocation (
    job TEXT NOT NULL REFERENCES job (id),
    generation INTEGER NOT NULL,
    spec INTEGER NOT NULL,
    body TEXT NOT NULL,
    wanted_s REAL NOT NULL,
    decision TEXT,
    standing TEXT NOT NULL CHECK (standing IN ('wanted', 'accepted', 'refused', 'past')),
    PRIMARY KEY (job, generation)
) STRICT;

CREATE TABLE decision (
    id TEXT PRIMARY KEY,
    round INTEGER NOT NULL,
    time_s REAL NOT NULL,
    job TEXT,
    policy TEXT NOT NULL,
    reason TEXT NOT NULL,
    sentence TEXT NOT NULL,
    numbers TEXT NOT NULL,
    causes TEXT NOT NULL,
    expects TEXT,
    asked TEXT NOT NULL,
    granted TEXT NOT NULL,
    clips TEXT NOT NULL,
    -- The same wish with the same answer in the rounds after: how often, and when last.
    times INTEGER NOT NULL DEFAULT 1,
    last_s REAL NOT NULL,
    -- What the expected metric was when its time had come.
    came TEXT
) STRICT;
CREATE INDEX decision_by_job ON decision (job, time_s);
CREATE INDEX decision_by_time ON decision (time_s);

CREATE TABLE action (
    id TEXT PRIMARY KEY,
    decision TEXT,
    job TEXT,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    wanted_s REAL NOT NULL,
    started_s REAL,
    ended_s REAL,
    status TEXT,
    code TEXT,
    message TEXT,
    took_s REAL
) STRICT;
CREATE INDEX action_open ON action (job) WHERE ended_s IS NULL;
CREATE INDEX action_by_decision ON action (decision);

CREATE TABLE round (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    number INTEGER NOT NULL,
    time_s REAL NOT NULL,
    policy TEXT NOT NULL,
    state TEXT NOT NULL
) STRICT;

CREATE TABLE cost (
    job TEXT NOT NULL REFERENCES job (id),
    ability TEXT NOT NULL,
    gap_s REAL NOT NULL,
    times INTEGER NOT NULL,
    PRIMARY KEY (job, ability)
) STRICT;

CREATE TABLE layout (
    id INTEGER PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;

CREATE TABLE series (
    time_s REAL PRIMARY KEY,
    layout INTEGER NOT NULL REFERENCES layout (id),
    body BLOB NOT NULL
) STRICT;

CREATE TABLE event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time_s REAL NOT NULL,
    kind TEXT NOT NULL,
    job TEXT,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX event_by_job ON event (job, id);
CREATE INDEX event_by_time ON event (time_s);
