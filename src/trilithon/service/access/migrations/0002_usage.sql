-- What each tenant has used: slots times seconds, by day (UTC).
CREATE TABLE usage (
    tenant TEXT NOT NULL,
    day TEXT NOT NULL,
    slot_s REAL NOT NULL,
    PRIMARY KEY (tenant, day)
) STRICT;
