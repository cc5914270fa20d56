-- The ledger's tables, and the rules that SQLite keeps for us.

PRAGMA application_id = 1346455889;
PRAGMA user_version = 1;

CREATE TABLE record (
    seq      INTEGER PRIMARY KEY CHECK (seq >= 1),
    kind     TEXT NOT NULL CHECK (kind IN ('run_opened', 'expected', 'intent', 'outcome',
                                  'accepted', 'terminal', 'operator', 'run_closed')),
    key      TEXT,
    route    TEXT,
    attempt  INTEGER CHECK (attempt >= 1),
    at       REAL NOT NULL,
    body     TEXT NOT NULL CHECK (json_valid(body)),
    previous TEXT NOT NULL,
    digest   TEXT NOT NULL,
    CHECK ((kind IN ('run_opened', 'run_closed')) = (key IS NULL) OR kind = 'operator'),
    CHECK ((kind IN ('intent', 'outcome')) = (attempt IS NOT NULL)),
    UNIQUE (seq, kind, key)
) STRICT;

-- Only intents and outcomes have an attempt; rows without one are all different to SQLite.
CREATE UNIQUE INDEX one_of_each_attempt ON record (key, route, attempt, kind);
CREATE UNIQUE INDEX one_accepted_reply ON record (key) WHERE kind = 'accepted';

CREATE TABLE score (
    key       TEXT PRIMARY KEY,
    accepted  INTEGER NOT NULL UNIQUE,
    kind      TEXT NOT NULL CHECK (kind = 'accepted'),
    value     INTEGER NOT NULL CHECK (value BETWEEN 0 AND 100),
    evaluator TEXT NOT NULL CHECK (evaluator <> ''),
    FOREIGN KEY (accepted, kind, key) REFERENCES record (seq, kind, key)
) STRICT;

CREATE TRIGGER record_is_final BEFORE UPDATE ON record
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER record_stays BEFORE DELETE ON record
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER score_is_final BEFORE UPDATE ON score
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER score_stays BEFORE DELETE ON score
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;

CREATE TRIGGER record_follows BEFORE INSERT ON record
    WHEN NEW.previous IS NOT COALESCE(
        (SELECT digest FROM record WHERE seq = NEW.seq - 1),
        CASE NEW.seq WHEN 1 THEN '0000000000000000000000000000000000000000000000000000000000000000' END)
    BEGIN SELECT RAISE(ABORT, 'the row does not follow the last one'); END;

CREATE TRIGGER three_sends BEFORE INSERT ON record
    WHEN NEW.kind = 'intent' AND NEW.attempt > 3 AND NEW.attempt > 3 + (
        SELECT count(*) FROM record WHERE kind = 'operator' AND key = NEW.key
        AND route = NEW.route AND json_extract(body, '$.action') = 'grant')
    BEGIN SELECT RAISE(ABORT, 'a key is sent at most three times over one route'); END;

CREATE TRIGGER outcome_has_intent BEFORE INSERT ON record
    WHEN NEW.kind = 'outcome' AND NOT EXISTS (
        SELECT 1 FROM record WHERE kind = 'intent' AND key = NEW.key AND route = NEW.route
        AND attempt = NEW.attempt)
    BEGIN SELECT RAISE(ABORT, 'an outcome needs its intent'); END;

CREATE TRIGGER score_is_the_accepted_one BEFORE INSERT ON score
    WHEN NEW.value IS NOT (
        SELECT json_extract(body, '$.score') FROM record WHERE seq = NEW.accepted)
    BEGIN SELECT RAISE(ABORT, 'a score is the one of its accepted reply'); END;
