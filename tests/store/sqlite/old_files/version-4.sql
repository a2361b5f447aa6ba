-- A store as version 4 wrote it: text, so that a change of it can be seen. Never to be changed.
PRAGMA application_id = 1180126769;
PRAGMA user_version = 4;
BEGIN TRANSACTION;
CREATE TABLE counters (
            one          INTEGER PRIMARY KEY CHECK (one = 1),
            revision     INTEGER NOT NULL,  -- the last one given, to whichever record
            position     INTEGER NOT NULL,  -- the last one given
            journal_rows INTEGER NOT NULL   -- how many there are: to count them would take time
        , pruned INTEGER NOT NULL DEFAULT 0, checks INTEGER NOT NULL DEFAULT 0);
INSERT INTO "counters" VALUES(1,4,4,3,1,0);
CREATE TABLE journal (
            position INTEGER PRIMARY KEY,
            kind     TEXT    NOT NULL,
            id       TEXT    NOT NULL,
            at       INTEGER NOT NULL,     -- microseconds since 1970
            entry    TEXT    NOT NULL      -- JSON
        , event TEXT, did TEXT, author TEXT, request TEXT);
INSERT INTO "journal" VALUES(2,'scope','batch',1772366400000000,'{"n":1,"at":"2026-03-01T12:00:00Z","did":"scope-created","by":"operator"}',NULL,'scope-created','operator',NULL);
INSERT INTO "journal" VALUES(3,'scope','web',1772366400000000,'{"n":2,"at":"2026-03-01T12:00:00Z","did":"approved","by":"web-0","event":"602D9444-D2CD-49C7-8624-8643E7171297","vms":["web-0"],"incarnation":2,"facts":{"via":"guest"}}','602D9444-D2CD-49C7-8624-8643E7171297','approved','web-0',NULL);
INSERT INTO "journal" VALUES(4,'scope','batch',1772366400000000,'{"n":2,"at":"2026-03-01T12:00:00Z","did":"scope-removed","by":"operator","why":"empty"}',NULL,'scope-removed','operator',NULL);
CREATE TABLE records (
            number   INTEGER PRIMARY KEY,  -- the order of the snapshot; a row keeps it while the record lives
            kind     TEXT    NOT NULL,
            id       TEXT    NOT NULL,
            revision INTEGER NOT NULL,
            value    BLOB    NOT NULL,
            UNIQUE (kind, id)
        );
INSERT INTO "records" VALUES(1,'scope','web',3,X'7765622C207365636F6E642076616C7565');
CREATE INDEX journal_by_time ON journal (at);
CREATE INDEX journal_by_event ON journal (event) WHERE event IS NOT NULL;
CREATE INDEX journal_by_did ON journal (did, at);
CREATE INDEX journal_by_author ON journal (author, position, at);
CREATE INDEX journal_by_record ON journal (kind, id, position, at);
CREATE INDEX journal_by_request ON journal (request) WHERE request IS NOT NULL;
COMMIT;
