-- What language models made of what was judged: lessons, explanations, techniques, and opinions on programs.
-- Nothing here decides a gate.

-- The memory of an island as its last reflection left it: rewritten as a whole, so it has no key.
CREATE TABLE lessons (
    run_id     VARCHAR NOT NULL,
    island     INTEGER NOT NULL,
    position   INTEGER NOT NULL,            -- 0 is the oldest
    text       VARCHAR NOT NULL,
    created_s  DOUBLE NOT NULL,             -- seconds since the epoch, of the reflection
    created_at TIMESTAMP AS (make_timestamp(CAST(created_s * 1e6 AS BIGINT)))
);

CREATE TABLE explanations (
    candidate_id        VARCHAR PRIMARY KEY,
    run_id              VARCHAR NOT NULL,
    island              INTEGER NOT NULL,
    diagnosis_was_right BOOLEAN,            -- NULL: the model does not say
    fix_worked          BOOLEAN,
    cause               VARCHAR NOT NULL,
    avoid               VARCHAR NOT NULL,
    try_next            VARCHAR NOT NULL,
    model               VARCHAR NOT NULL,
    created_s           DOUBLE NOT NULL,
    created_at          TIMESTAMP AS (make_timestamp(CAST(created_s * 1e6 AS BIGINT)))
);

-- Techniques that the catalogue lacks.
CREATE TABLE learnt_techniques (
    run_id        VARCHAR NOT NULL,
    name          VARCHAR NOT NULL,
    changes       VARCHAR NOT NULL,
    instruction   VARCHAR NOT NULL,
    addresses     VARCHAR[] NOT NULL,
    kinds         VARCHAR[] NOT NULL,       -- empty: kernels of every kind
    preconditions VARCHAR[] NOT NULL,
    risks         VARCHAR[] NOT NULL,
    model         VARCHAR NOT NULL,
    created_s     DOUBLE NOT NULL,
    created_at    TIMESTAMP AS (make_timestamp(CAST(created_s * 1e6 AS BIGINT))),
    PRIMARY KEY (run_id, name)
);

-- One row for each concern; one with an empty kind where the judge has none.
CREATE TABLE opinions (
    run_id     VARCHAR NOT NULL,
    program_id VARCHAR NOT NULL,
    position   INTEGER NOT NULL,
    kind       VARCHAR NOT NULL,            -- left_out, faked, fragile
    line       INTEGER NOT NULL,            -- of the program; 0: none in particular
    what       VARCHAR NOT NULL,
    advice     VARCHAR NOT NULL,
    model      VARCHAR NOT NULL,
    created_s  DOUBLE NOT NULL,
    created_at TIMESTAMP AS (make_timestamp(CAST(created_s * 1e6 AS BIGINT))),
    PRIMARY KEY (run_id, program_id, position)
);
