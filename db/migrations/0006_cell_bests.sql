-- Rows that were the fastest of their cell, on their island of their run, when they came. A question about elites groups
-- these few instead of all evaluations. They say nothing that evaluations do not say: the statement below makes them.

CREATE TABLE cell_bests AS
SELECT
    arg_min(seq, rank_us) AS seq, run_id, island, problem_id, hardware_id, precision, latency_kind, grid, cell,
    min(rank_us) AS rank_us, arg_min(speedup, rank_us) AS speedup
FROM evaluations
WHERE rank_us IS NOT NULL
GROUP BY run_id, island, problem_id, hardware_id, precision, latency_kind, grid, cell;

DROP VIEW elites;
CREATE VIEW elites AS
SELECT problems.name AS problem, evaluations.*
FROM evaluations JOIN problems USING (problem_id)
WHERE evaluations.seq IN (SELECT arg_min(seq, rank_us) FROM cell_bests GROUP BY grid, cell);
