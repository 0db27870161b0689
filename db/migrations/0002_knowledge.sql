-- Why a program is not faster, and what was tried because of it. Filled from here on: earlier rows know no state.

ALTER TABLE evaluations ADD COLUMN profile_source VARCHAR;       -- ncu, compiled, none; NULL without a profile
ALTER TABLE evaluations ADD COLUMN state VARCHAR;                -- key of its performance state
ALTER TABLE evaluations ADD COLUMN parent_state VARCHAR;         -- state of its first parent when it was proposed
ALTER TABLE evaluations ADD COLUMN predicted_octaves DOUBLE;     -- what its technique was expected to gain

-- A view knows the columns that its table had when it was made.
DROP VIEW elites;
CREATE VIEW elites AS
SELECT problems.name AS problem, evaluations.*
FROM evaluations JOIN problems USING (problem_id)
WHERE evaluations.rowid IN (SELECT arg_min(rowid, rank_us) FROM evaluations WHERE rank_us IS NOT NULL GROUP BY grid, cell);

-- One row for each technique that was tried on a parent: what it was expected to gain, in octaves of latency, and what
-- it gained (NULL: the program failed). `previous` is the technique that made the parent.
CREATE VIEW attempts AS
SELECT
    child.seq, child.candidate_id, child.run_id, child.problem_id, child.hardware_id, child.operator, child.technique,
    parent.technique AS previous, child.parent_state AS state, child.outcome, child.gate, child.predicted_octaves,
    log2(parent.latency_us / child.latency_us) AS octaves, child.latency_kind, child.state AS child_state,
    child.lineage->>'detail' AS detail, child.created_s
FROM evaluations AS child
JOIN (
    SELECT run_id, program_id, arg_min(latency_us, seq) AS latency_us, arg_min(technique, seq) AS technique
    FROM evaluations
    WHERE latency_us IS NOT NULL AND operator != 'confirm'
    GROUP BY run_id, program_id
) AS parent ON parent.run_id = child.run_id AND parent.program_id = child.parents[1]
WHERE child.technique != '' AND child.duplicate_of = '' AND child.outcome != 'unsupported';

-- What other archives learnt, as it was imported: sums, not attempts.
CREATE TABLE imported_knowledge (
    origin     VARCHAR NOT NULL,            -- the file or archive that it came from
    record     JSON NOT NULL,               -- the evidence on one technique in one state
    created_at TIMESTAMP NOT NULL
);
