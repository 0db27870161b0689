-- Every call of a language model: who asked, what it came to, what it cost. Prompts are here as hashes alone.

CREATE TABLE llm_calls (
    call_id              VARCHAR PRIMARY KEY,
    run_id               VARCHAR NOT NULL,
    island               INTEGER NOT NULL,
    operator             VARCHAR NOT NULL,
    model                VARCHAR NOT NULL,          -- provider/name
    prompt_hash          VARCHAR NOT NULL,
    n_tokens_in          BIGINT NOT NULL,
    n_tokens_out         BIGINT NOT NULL,
    has_estimated_tokens BOOLEAN NOT NULL,          -- the server did not say how many
    cost_usd             DOUBLE,                    -- NULL: the model is unpriced
    seconds              DOUBLE NOT NULL,
    outcome              VARCHAR NOT NULL,          -- answered, cut_off, or the kind of the failure
    reason               VARCHAR NOT NULL,          -- why it failed
    created_s            DOUBLE NOT NULL,           -- seconds since the epoch
    created_at           TIMESTAMP AS (make_timestamp(CAST(created_s * 1e6 AS BIGINT)))
);
