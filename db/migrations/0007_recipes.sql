-- How winners of other archives came about, as it was imported. Those of this archive follow from its evaluations.
CREATE TABLE imported_recipes (
    origin     VARCHAR NOT NULL,            -- the file or archive that it came from
    record     JSON NOT NULL,               -- the recipe
    created_at TIMESTAMP NOT NULL
);
