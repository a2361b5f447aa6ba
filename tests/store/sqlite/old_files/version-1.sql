-- A store as version 1 wrote it: text, so that a change of it can be seen. Never to be changed.
PRAGMA application_id = 1180126769;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE counters (
            one          INTEGER PRIMARY KEY CHECK (one = 1),
            revision     INTEGER NOT NULL,  -- the last one given, to whichever record
            position     INTEGER NOT NULL,  -- the last one given
            journal_rows INTEGER NOT NULL   -- how many there are: to count them would take time
        );
INSERT INTO "counters" VALUES(1,4,4,3);
CREATE TABLE journal (
            position INTEGER PRIMARY KEY,
            kind     TEXT    NOT NULL,
            id       TEXT    NOT NULL,
            at       INTEGER NOT NULL,     -- microseconds since 1970
            entry    TEXT    NOT NULL      -- JSON
        );
INSERT INTO "journal" VALUES(2,'scope','batch',1772366400000000,'{"n":1,"at":"2026-03-01T12:00:00Z","did":"scope-created","by":"operator"}');
INSERT INTO "journal" VALUES(3,'scope','web',1772366400000000,'{"n":2,"at":"2026-03-01T12:00:00Z","did":"approved","by":"web-0","event":"602D9444-D2CD-49C7-8624-8643E7171297","vms":["web-0"],"incarnation":2,"facts":{"via":"guest"}}');
INSERT INTO "journal" VALUES(4,'scope','batch',1772366400000000,'{"n":2,"at":"2026-03-01T12:00:00Z","did":"scope-removed","by":"operator","why":"empty"}');
CREATE TABLE records (
            number   INTEGER PRIMARY KEY,  -- the order of the snapshot; a row keeps it while the record lives
            kind     TEXT    NOT NULL,
            id       TEXT    NOT NULL,
            revision INTEGER NOT NULL,
            value    BLOB    NOT NULL,
            UNIQUE (kind, id)
        );
INSERT INTO "records" VALUES(1,'scope','web',3,X'7765622C207365636F6E642076616C7565');
CREATE INDEX journal_by_record ON journal (kind, id);
CREATE INDEX journal_by_time ON journal (at);
COMMIT;
