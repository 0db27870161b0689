-- What an archive holds. One wide table of evaluations and two small ones beside it: `programs` and `elites` are
-- questions about it, not second truths. No foreign keys: DuckDB cannot update a row that one points at.
-- Columns of a table with an index can be added, not dropped or retyped: a later migration that must do so copies it.

CREATE TABLE problems (
    problem_id VARCHAR PRIMARY KEY,
    name       VARCHAR NOT NULL,
    kind       VARCHAR NOT NULL,
    record     JSON NOT NULL,                   -- the whole Problem
    created_at TIMESTAMP NOT NULL               -- UTC, as every time here
);

CREATE TABLE runs (
    run_id       VARCHAR PRIMARY KEY,
    problem_id   VARCHAR NOT NULL,
    status       VARCHAR NOT NULL,              -- running, finished, interrupted
    device       VARCHAR NOT NULL,              -- cuda, cpu
    hardware_id  VARCHAR NOT NULL,
    precision    VARCHAR NOT NULL,              -- reference, relaxed
    latency_kind VARCHAR NOT NULL,              -- measured, modelled
    rng_seed     BIGINT NOT NULL,
    stop_reason  VARCHAR NOT NULL,
    started_at   TIMESTAMP NOT NULL,
    finished_at  TIMESTAMP,
    record       JSON NOT NULL                  -- the whole Run
);

CREATE TABLE evaluations (
    seq               BIGINT NOT NULL,          -- order of insertion
    candidate_id      VARCHAR PRIMARY KEY,
    run_id            VARCHAR NOT NULL,
    problem_id        VARCHAR NOT NULL,
    island            INTEGER NOT NULL,
    program_id        VARCHAR NOT NULL,
    entry_point       VARCHAR NOT NULL,
    hardware_id       VARCHAR NOT NULL,
    precision         VARCHAR NOT NULL,
    outcome           VARCHAR NOT NULL,         -- correct, failed, unsupported
    gate              VARCHAR,                  -- the first gate that refused; speed refuses correct programs too
    reason            VARCHAR NOT NULL,         -- why it refused; empty when every gate passed
    latency_kind      VARCHAR,                  -- this and all up to the profile: NULL unless the outcome is correct
    latency_us        DOUBLE,
    low_us            DOUBLE,
    high_us           DOUBLE,
    call_us           DOUBLE,
    baseline_us       DOUBLE,
    baseline_call_us  DOUBLE,
    baseline_name     VARCHAR,
    floor_us          DOUBLE,
    speedup           DOUBLE,                   -- baseline_us / latency_us
    tier              VARCHAR,
    latency_bin       INTEGER,                  -- floor(8 * log2(latency_us))
    grid              UBIGINT,                  -- hash over problem, hardware, kind and precision: what may be compared
    cell              INTEGER,                  -- tier and latency bin as one number
    rank_us           DOUBLE,                   -- latency_us, where a byte of source costs 1e-12 of it: breaks ties
    replaces_baseline BOOLEAN NOT NULL,
    error_ratio       DOUBLE,
    compute_sol_pct   DOUBLE,
    memory_sol_pct    DOUBLE,
    fingerprint       VARCHAR NOT NULL,
    duplicate_of      VARCHAR NOT NULL,         -- the program whose verdict this repeats, or empty
    operator          VARCHAR NOT NULL,
    technique         VARCHAR NOT NULL,
    parents           VARCHAR[] NOT NULL,       -- program ids
    source_bytes      INTEGER NOT NULL,
    created_s         DOUBLE NOT NULL,          -- seconds since the epoch
    created_at        TIMESTAMP AS (make_timestamp(CAST(created_s * 1e6 AS BIGINT))),
    lineage           JSON NOT NULL,            -- the whole Lineage
    verdict           JSON NOT NULL,            -- the Verdict without its captures, which can be many times as long
    captures          JSON NOT NULL,            -- its captures: every launch and torch operation
    source            VARCHAR NOT NULL          -- as proposed: every spelling of a program is kept
);

CREATE UNIQUE INDEX evaluations_by_seq ON evaluations (seq);
CREATE INDEX evaluations_by_program ON evaluations (program_id);
CREATE INDEX evaluations_by_fingerprint ON evaluations (fingerprint);

-- One row per program, as it was first proposed.
CREATE VIEW programs AS
SELECT program_id, problem_id, entry_point, source
FROM evaluations
WHERE rowid IN (SELECT arg_min(rowid, seq) FROM evaluations GROUP BY program_id);

-- The fastest correct program of every cell, ties to the shorter source. Measured and modelled latencies, precision
-- classes, problems and GPUs have grids of their own.
CREATE VIEW elites AS
SELECT problems.name AS problem, evaluations.*
FROM evaluations JOIN problems USING (problem_id)
WHERE evaluations.rowid IN (SELECT arg_min(rowid, rank_us) FROM evaluations WHERE rank_us IS NOT NULL GROUP BY grid, cell);
