"""The records database as the first version made it, for tests of what becomes of it."""

FIRST = """
CREATE TABLE records (id VARCHAR(128) NOT NULL, time DOUBLE NOT NULL, policy TEXT NOT NULL, digest TEXT NOT NULL,
  dialect TEXT NOT NULL, model TEXT NOT NULL, route TEXT, "group" TEXT, deployment TEXT, outcome TEXT NOT NULL,
  score DOUBLE, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost DOUBLE, ttft_s DOUBLE,
  total_s DOUBLE NOT NULL, record TEXT NOT NULL, PRIMARY KEY (id));
CREATE INDEX records_time ON records (time, id);
CREATE TABLE feedback (request_id VARCHAR(128) NOT NULL, tenant VARCHAR(128) NOT NULL, time DOUBLE NOT NULL,
  score DOUBLE NOT NULL, label TEXT, PRIMARY KEY (request_id, tenant));
"""
