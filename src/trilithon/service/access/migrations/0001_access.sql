-- Times are seconds since 1970.

CREATE TABLE token (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    -- SHA-256 of the whole token. The token itself has 256 random bits: a slow hash would add nothing.
    hash TEXT NOT NULL UNIQUE,
    -- JSON: tenant to role.
    grants TEXT NOT NULL,
    cluster_admin INTEGER NOT NULL CHECK (cluster_admin IN (0, 1)),
    created_s REAL NOT NULL,
    created_by TEXT NOT NULL,
    expires_s REAL,
    revoked_s REAL
) STRICT;

CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time_s REAL NOT NULL,
    -- The token's id and its name at that time.
    token TEXT NOT NULL,
    name TEXT NOT NULL,
    action TEXT NOT NULL,
    tenant TEXT,
    subject TEXT NOT NULL,
    -- JSON; null where there was nothing.
    before TEXT,
    after TEXT
) STRICT;
CREATE INDEX audit_by_tenant ON audit (tenant, id);
