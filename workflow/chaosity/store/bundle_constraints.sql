-- What the rows of a bundle must be. profile_bundles.py puts the rows of others into these tables,
-- which are in memory, before it puts them into the database of a user, of whatever age.
--
-- $profiles, $components and $measurements are the columns, each with the check of its type or its
-- name. An error is "column: what is wrong". A check is a CASE, since OR and AND would evaluate
-- error() also for rows that are right.

-- Control characters, and those that turn the direction of writing, would change a terminal.
CREATE MACRO is_text(name, value, longest := 400) AS CASE
    WHEN length(value) > longest THEN error(
        printf('%s: a text has %d characters; allowed: %d', name, length(value), longest))
    WHEN regexp_matches(value, '[\x00-\x1f\x7f-\x9f\x{202a}-\x{202e}\x{2066}-\x{2069}]')
        THEN error(name || ': a text has control characters')
    ELSE true
END;

-- Python reads these texts later, so Python's parser decides what is JSON. The topology of a large
-- machine has 1 MB.
CREATE MACRO is_object(name, value) AS CASE
    WHEN NOT is_text(name, value, longest := CASE name WHEN 'topology' THEN 4194304 ELSE 400 END)
        OR NOT is_json_object(value) THEN error(name || ': a text is not a JSON object')
    ELSE true
END;

CREATE MACRO is_date(name, value) AS CASE
    WHEN regexp_full_match(value, '[12]\d{3}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d{1,6})?Z)?')
        AND try_cast(value AS TIMESTAMP) IS NOT NULL AND value < '$tomorrow' THEN true
    WHEN is_text(name, value) AND value IS NOT NULL THEN error(
        printf('%s: ''%s'' is not a date of a measurement; '
            'a date is like 2026-11-21, with or without a time of day', name, value))
    ELSE true
END;

-- Numbers are in SI units. A rate of a whole machine has 13 digits.
CREATE MACRO is_number(name, value) AS CASE
    WHEN value <> 0 AND value NOT BETWEEN 1e-18 AND 1e18 THEN error(
        printf('%s: a row has the number %g; a number is 0 or from 1e-18 to 1e+18',
            name, value::DOUBLE))
    ELSE true
END;

CREATE TABLE provenance (
    name VARCHAR,
    value VARCHAR,
    CHECK (is_text('provenance', name)),
    CHECK (CASE name WHEN 'published_on' THEN is_date(name, value) ELSE is_text(name, value) END)
);

CREATE TABLE profiles (
    $profiles,
    PRIMARY KEY (id),
    UNIQUE (id, host, configuration),
    CHECK (CASE WHEN regexp_full_match(id, '[0-9a-f]{16}') THEN true
        ELSE error('id: a profile has an id that is not 16 hexadecimal digits') END)
);

CREATE TABLE components ($components, FOREIGN KEY (profile) REFERENCES profiles (id));

CREATE TABLE measurements (
    $measurements,
    FOREIGN KEY (profile, host, configuration) REFERENCES profiles (id, host, configuration),
    CHECK (CASE
        WHEN CASE status WHEN 'valid' THEN coalesce(value >= 0, false) ELSE value IS NULL END
            THEN true
        ELSE error(
            printf('value: replicate %d of the point %s has the status %s and the value %s; '
                'a valid row has a finite value of at least zero, any other row has none',
                replicate, point, status, coalesce(format('{:g}', value), 'none')))
    END)
);
