-- What people ask of the cluster on demand, until a policy has ended it.
CREATE TABLE request (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    machines INTEGER NOT NULL,
    job TEXT,
    asked_s REAL NOT NULL,
    ended_s REAL,
    done INTEGER,
    message TEXT
);
