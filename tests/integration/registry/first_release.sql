BEGIN TRANSACTION;
CREATE TABLE schema_references (
	schema_id INTEGER NOT NULL, 
	name VARCHAR(1024) NOT NULL, 
	subject VARCHAR(1024) NOT NULL, 
	version INTEGER NOT NULL, 
	PRIMARY KEY (schema_id, name, subject, version), 
	FOREIGN KEY(schema_id) REFERENCES schemas (id) ON DELETE CASCADE
);
INSERT INTO "schema_references" VALUES(3,'a.A','a',2);
CREATE TABLE schemas (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	context VARCHAR(255) NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	guid VARCHAR(36) NOT NULL, 
	schema_type VARCHAR(32) NOT NULL, 
	text TEXT NOT NULL, 
	"references" JSON NOT NULL, 
	metadata JSON, 
	rule_set JSON
);
INSERT INTO "schemas" VALUES(1,'.','d5392d07dfc1bcae18d81e04ad85cceb55c07503803e1ff0cb53da0dcfd1d872','095d71cf-1255-6b9d-5e33-0ad575b3df5d','AVRO','"string"','[]',NULL,NULL);
INSERT INTO "schemas" VALUES(2,'.','fcf9ca78047cb27ede8f4fc94a196b6d130b36fa5cdbf5e256a6472e5701da7d','28d8cccb-a577-1a2a-874d-33960d7d423a','AVRO','{"type":"record","name":"A","namespace":"a","fields":[]}','[]',NULL,NULL);
INSERT INTO "schemas" VALUES(3,'.','bedb566b944c0bfb895429656d79ede05ba20f948e98a1549427223e1fffd0e4','a43e2651-6be1-ca91-3e8f-86d06c3d3449','AVRO','{"type":"record","name":"B","fields":[{"name":"a","type":"a.A"}]}','[{"name": "a.A", "subject": "a", "version": 2}]',NULL,NULL);
CREATE TABLE settings (
	kind VARCHAR(16) NOT NULL, 
	subject VARCHAR(1024) NOT NULL, 
	value JSON NOT NULL, 
	PRIMARY KEY (kind, subject)
);
INSERT INTO "settings" VALUES('config','a','{"compatibilityLevel": "NONE"}');
CREATE TABLE versions (
	subject VARCHAR(1024) NOT NULL, 
	version INTEGER NOT NULL, 
	schema_id INTEGER NOT NULL, 
	deleted BOOLEAN NOT NULL, 
	timestamp_ms BIGINT NOT NULL, 
	PRIMARY KEY (subject, version), 
	FOREIGN KEY(schema_id) REFERENCES schemas (id)
);
INSERT INTO "versions" VALUES('a',1,1,0,1795255712911);
INSERT INTO "versions" VALUES('a',2,2,0,1795255712921);
INSERT INTO "versions" VALUES('b',1,3,0,1795255712934);
CREATE UNIQUE INDEX schemas_identity ON schemas (context, fingerprint);
CREATE INDEX ix_schemas_guid ON schemas (guid);
CREATE INDEX ix_versions_schema_id ON versions (schema_id);
CREATE INDEX schema_references_target ON schema_references (subject, version);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('schemas',4);
COMMIT;
