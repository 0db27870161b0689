-- Questions for language models that were written down instead of asked, for machines without internet: they leave in a
-- file, and their answers come back in one.

CREATE TABLE llm_questions (
    question_id VARCHAR PRIMARY KEY,            -- the custom_id of batch files
    run_id      VARCHAR NOT NULL,
    island      INTEGER NOT NULL,
    dialogue_id VARCHAR NOT NULL,
    operator    VARCHAR NOT NULL,
    model       VARCHAR NOT NULL,               -- provider/name
    prompt_hash VARCHAR NOT NULL,
    status      VARCHAR NOT NULL,               -- waiting, answered (its island has not heard it), closed
    request     JSON NOT NULL,                  -- what is asked, whole
    spec        JSON NOT NULL,                  -- the model with its settings
    answer      JSON,                           -- what came back; NULL while it waits
    created_s   DOUBLE NOT NULL,                -- seconds since the epoch
    created_at  TIMESTAMP AS (make_timestamp(CAST(created_s * 1e6 AS BIGINT)))
);

-- Where the dialogues of each island stood at the end of a sitting, so that answers find them again.
CREATE TABLE llm_dialogues (
    run_id VARCHAR NOT NULL,
    island INTEGER NOT NULL,
    record JSON NOT NULL,
    PRIMARY KEY (run_id, island)
);
