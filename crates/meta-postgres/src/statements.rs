//! The statements on a volume's tables. They are prepared once for each connection.

use futures_util::future::try_join_all;
use tokio_postgres::{Client, Statement};

/// The columns of a record, in the order in which `reads` expects them.
const COLUMNS: &str = "key, value, version, sum1, sum2, max1, max2";

/// The checks and merges of a group. `failed` has the numbers of the commits whose conditions do not hold. `admitted` notes the group in
/// the session's row, and is empty if the session may not commit; nothing is written then.
///
/// `$1..$4` conditions on keys (number of the commit, key, kind, version), `$5..$7` empty ranges (commit, from, to), `$8, $9` the keys that
/// commits with conditions on ranges put or delete, `$10..$15` merges (commit, key, sums, maxima). `$16` session, `$17` generation, `$18` number of the group.
const CHECKS: &str = "
    h AS MATERIALIZED (SELECT head, owner FROM head),
    failed AS MATERIALIZED (
        SELECT c.nr FROM unnest($1::int4[], $2::bytea[], $3::int4[], $4::int8[]) AS c(nr, key, kind, version)
            LEFT JOIN record r ON r.key = c.key
            WHERE CASE c.kind
                WHEN 0 THEN r.version IS DISTINCT FROM c.version
                WHEN 1 THEN r.version IS NULL
                ELSE r.version IS NOT NULL END
        UNION
        SELECT e.nr FROM unnest($5::int4[], $6::bytea[], $7::bytea[]) AS e(nr, lower, upper)
            WHERE EXISTS (SELECT 1 FROM record r WHERE r.key >= e.lower AND r.key < e.upper
                AND NOT EXISTS (SELECT 1 FROM unnest($8::int4[], $9::bytea[]) AS w(nr, key)
                    WHERE w.nr = e.nr AND w.key = r.key))
        UNION
        SELECT m.nr FROM unnest($10::int4[], $11::bytea[]) AS m(nr, key)
            WHERE NOT EXISTS (SELECT 1 FROM record r WHERE r.key = m.key)
    ),
    admitted AS (
        UPDATE session s SET last_group = $18::int8, base = h.head, failed = ARRAY(SELECT nr FROM failed), used_at = now()
        FROM h
        WHERE s.id = $16::int8 AND s.generation = $17::int8 AND s.last_group = $18::int8 - 1 AND (h.owner IS NULL OR h.owner = s.id)
        RETURNING h.head
    ),
    merged AS (
        UPDATE record r SET sum1 = r.sum1 + m.sum1, sum2 = r.sum2 + m.sum2,
            max1 = greatest(r.max1, m.max1), max2 = greatest(r.max2, m.max2), version = a.head + m.nr
        FROM (
            SELECT key, sum(sum1)::int8 AS sum1, sum(sum2)::int8 AS sum2, max(max1) AS max1, max(max2) AS max2, max(nr) AS nr
            FROM unnest($10::int4[], $11::bytea[], $12::int8[], $13::int8[], $14::int8[], $15::int8[])
                AS m(nr, key, sum1, sum2, max1, max2)
            WHERE nr NOT IN (SELECT nr FROM failed) GROUP BY key
        ) m JOIN record o ON o.key = m.key, admitted a
        WHERE r.key = m.key
        RETURNING r.key, o.version AS before, r.version, r.sum1, r.sum2, r.max1, r.max2
    )";

/// The writes of a group: `$19..$23` puts (commit, key, record, sums), `$24, $25` deletes, `$26..$29` log (commit, number of ops, encoded ops,
/// keys of changed records), `$30` the commits that change something.
const WRITES: &str = "
    put AS (
        INSERT INTO record (key, value, version, sum1, sum2)
        SELECT p.key, p.value, a.head + p.nr, p.sum1, p.sum2
        FROM unnest($19::int4[], $20::bytea[], $21::bytea[], $22::int8[], $23::int8[]) AS p(nr, key, value, sum1, sum2), admitted a
        WHERE p.nr NOT IN (SELECT nr FROM failed)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version,
            sum1 = excluded.sum1, sum2 = excluded.sum2, max1 = NULL, max2 = NULL
    ),
    deleted AS (
        DELETE FROM record r USING unnest($24::int4[], $25::bytea[]) AS d(nr, key), admitted
        WHERE r.key = d.key AND d.nr NOT IN (SELECT nr FROM failed)
    ),
    logged AS (
        INSERT INTO log (seqno, ops, bytes, run_bytes, records, keys, session)
        SELECT a.head + l.nr, l.ops, octet_length(l.records), 0, l.records, l.keys, $16
        FROM unnest($26::int4[], $27::int8[], $28::bytea[], $29::bytea[]) AS l(nr, ops, records, keys), admitted a
        WHERE l.nr NOT IN (SELECT nr FROM failed)
        RETURNING ops, bytes, run_bytes
    ),
    last AS (SELECT max(nr) AS nr FROM unnest($30::int4[]) AS w(nr) WHERE nr NOT IN (SELECT nr FROM failed))";

/// The writes of a commit that adds a run: `$19` version of the run, `$20` number of the commit, `$21` ops, `$22` bytes of their pages, `$23`
/// pages.
const RUN_WRITES: &str = "
    run AS (
        DELETE FROM run_record r USING admitted
        WHERE r.version = $19 AND NOT EXISTS (SELECT 1 FROM failed)
        RETURNING r.key, r.value, r.sum1, r.sum2
    ),
    put AS (
        INSERT INTO record (key, value, version, sum1, sum2)
        SELECT key, value, $19::int8, sum1, sum2 FROM run WHERE value IS NOT NULL
        ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version,
            sum1 = excluded.sum1, sum2 = excluded.sum2, max1 = NULL, max2 = NULL
    ),
    deleted AS (DELETE FROM record r USING run WHERE r.key = run.key AND run.value IS NULL),
    logged AS (
        INSERT INTO log (seqno, ops, bytes, run_bytes, run_version, run_pages, session)
        SELECT a.head + $20::int4, $21::int8, 0, $22::int8, $19, $23::int4, $16 FROM admitted a
        WHERE NOT EXISTS (SELECT 1 FROM failed)
        RETURNING ops, bytes, run_bytes
    ),
    last AS (SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM failed) THEN $20::int4 END AS nr)";

/// Moves the head. Returns the head before (null if the session may not commit), the numbers of the commits that failed, the new head,
/// the size of the log, the records that were merged into, each with the commit that wrote it before, and the leases of strict sessions.
const MOVE_HEAD: &str = "
    moved AS (
        UPDATE head SET head = head.head + coalesce(last.nr, 0),
            log_ops = log_ops + coalesce((SELECT sum(ops) FROM logged), 0)::int8,
            log_bytes = log_bytes + coalesce((SELECT sum(bytes) FROM logged), 0)::int8,
            run_bytes = head.run_bytes + coalesce((SELECT sum(run_bytes) FROM logged), 0)::int8
        FROM last, admitted
        RETURNING head.head, log_ops, log_bytes, head.run_bytes
    )
    SELECT a.head, ARRAY(SELECT nr FROM failed), m.head, m.log_ops, m.log_bytes, m.run_bytes,
        ARRAY(SELECT key FROM merged ORDER BY key), ARRAY(SELECT before FROM merged ORDER BY key),
        ARRAY(SELECT version FROM merged ORDER BY key), ARRAY(SELECT sum1 FROM merged ORDER BY key),
        ARRAY(SELECT sum2 FROM merged ORDER BY key), ARRAY(SELECT max1 FROM merged ORDER BY key),
        ARRAY(SELECT max2 FROM merged ORDER BY key),
        ARRAY(SELECT session FROM lease WHERE is_strict ORDER BY session), ARRAY(SELECT epoch FROM lease WHERE is_strict ORDER BY session),
        ARRAY(SELECT beat FROM lease WHERE is_strict ORDER BY session), ARRAY(SELECT read_to FROM lease WHERE is_strict ORDER BY session)
    FROM (SELECT 1) AS one LEFT JOIN admitted a ON true LEFT JOIN moved m ON true";

/// Replaces the locks `$5` of the inode `$4` by `$6`; without one of these there are none. `$1` session, `$2` epoch, `$3` fence, `$7` beat of the
/// lease. Returns whether there is this lease, and how many rows were replaced. The lock of the lease's row makes a replacement from an earlier
/// connection wait for the fence of the next one.
const REPLACE_LOCKS: &str = "
    WITH fence AS (
        UPDATE lease SET beat = greatest(beat, $7) WHERE session = $1 AND epoch = $2 AND fence = $3 RETURNING session
    ),
    added AS (
        INSERT INTO lock SELECT $4::int8, $6::bytea FROM fence WHERE $5::bytea IS NULL AND $6::bytea IS NOT NULL
        ON CONFLICT DO NOTHING RETURNING ino
    ),
    replaced AS (
        UPDATE lock SET held = $6::bytea FROM fence
        WHERE ino = $4 AND held = $5::bytea AND $6::bytea IS NOT NULL RETURNING ino
    ),
    removed AS (DELETE FROM lock USING fence WHERE ino = $4 AND held = $5::bytea AND $6::bytea IS NULL RETURNING ino)
    SELECT (SELECT count(*) FROM fence), (SELECT count(*) FROM added) + (SELECT count(*) FROM replaced) + (SELECT count(*) FROM removed)";

/// Returns the locks of the inode `$1`, the sessions with leases and their epochs, and the head.
const LOCKS_OF: &str = "
    SELECT (SELECT held FROM lock WHERE ino = $1), ARRAY(SELECT session FROM lease ORDER BY session),
        ARRAY(SELECT epoch FROM lease ORDER BY session), head FROM head";

/// The columns of the state of the log.
const LOG_STATE: &str = "
    h.head, h.cut, h.log_ops, h.log_bytes, h.run_bytes, (SELECT min(seqno) FROM log WHERE ops > 0),
    (SELECT min(cursor) FROM consumer WHERE cursor >= h.cut)";

/// The columns and tables of a statement that returns the first `$2` commits of the log after `$1`.
const LOG_AFTER: &str = "
    l.seqno, l.ops, l.records, l.run_version, l.run_pages, l.run_bytes
    FROM head h LEFT JOIN LATERAL (SELECT * FROM log WHERE seqno > $1 AND ops > 0 ORDER BY seqno LIMIT $2) AS l ON true
    ORDER BY l.seqno";

/// The keys of the records that the first `$2` commits of other sessions than `$3` after `$1` changed, null for a run.
const CHANGED_AFTER: &str = "
    SELECT h.head, h.cut, l.seqno, l.keys
    FROM head h LEFT JOIN LATERAL (
        SELECT seqno, keys FROM log WHERE seqno > $1 AND session <> $3 ORDER BY seqno LIMIT $2
    ) AS l ON true
    ORDER BY l.seqno";

/// Cuts off what the log need not keep, up to a commit with ops, among its first `$4` commits: `$1` ops to keep without need, `$2` maximum bytes of ops, `$3` of runs.
const TRIM: &str = "
    WITH needed AS (SELECT min(cursor) AS cursor FROM consumer, head WHERE cursor >= cut),
    front AS (
        SELECT seqno, ops AS own_ops, sum(ops) OVER w - ops AS ops, sum(bytes) OVER w - bytes AS bytes, sum(run_bytes) OVER w - run_bytes AS run_bytes
        FROM (SELECT seqno, ops, bytes, run_bytes FROM log ORDER BY seqno LIMIT $4) AS f
        WINDOW w AS (ORDER BY seqno)
    ),
    end_of_cut AS (
        SELECT max(seqno) AS seqno FROM front, head h, needed
        WHERE front.own_ops > 0 AND (((needed.cursor IS NULL OR seqno <= needed.cursor) AND h.log_ops - front.ops > $1::int8)
            OR h.log_bytes - front.bytes > $2::int8 OR h.run_bytes - front.run_bytes > $3::int8)
    ),
    dropped AS (
        DELETE FROM log USING end_of_cut e WHERE log.seqno <= e.seqno
        RETURNING log.seqno, ops, bytes, run_bytes, run_version
    ),
    pages AS (DELETE FROM run_page p USING dropped d WHERE p.version = d.run_version),
    sums AS (
        SELECT max(seqno) AS cut, sum(ops)::int8 AS ops, sum(bytes)::int8 AS bytes, sum(run_bytes)::int8 AS run_bytes FROM dropped
    )
    UPDATE head SET cut = sums.cut, log_ops = log_ops - sums.ops, log_bytes = log_bytes - sums.bytes,
        run_bytes = head.run_bytes - sums.run_bytes
    FROM sums WHERE sums.cut IS NOT NULL";

/// Registers the consumer `$1` at the cursor `$2`. Returns no row, and registers nothing, if the log does not reach back to the cursor.
const REGISTER: &str = "
    INSERT INTO consumer SELECT $1::text, least($2::int8, head) FROM head WHERE cut <= $2
    ON CONFLICT (name) DO UPDATE SET cursor = excluded.cursor
    RETURNING cursor";

macro_rules! statements {
    ($($name:ident: $text:expr;)*) => {
        /// The prepared statements of a connection.
        pub(crate) struct Statements {
            $(pub(crate) $name: Statement,)*
        }

        impl Statements {
            /// Prepares all statements, in one round trip.
            pub(crate) async fn prepare(client: &Client) -> Result<Self, tokio_postgres::Error> {
                let texts = [$($text,)*];
                let mut prepared = try_join_all(texts.iter().map(|text| client.prepare(text))).await?.into_iter();
                let mut next = || prepared.next().unwrap_or_else(|| unreachable!("a statement is prepared for each text"));
                Ok(Self { $($name: next(),)* })
            }
        }
    };
}

statements! {
    get: format!("SELECT {COLUMNS} FROM record WHERE key = $1");
    multi_get: format!("SELECT {COLUMNS} FROM record WHERE key = ANY($1)");
    get_dentry: format!("SELECT {COLUMNS} FROM record WHERE key = $1 UNION ALL
        SELECT r.key, r.value, r.version, r.sum1, r.sum2, r.max1, r.max2
        FROM record d JOIN record r ON r.key = '\\x49'::bytea || decode(lpad(to_hex(d.sum1), 16, '0'), 'hex') WHERE d.key = $1");
    scan: format!("SELECT {COLUMNS} FROM record WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3");
    scan_to_end: format!("SELECT {COLUMNS} FROM record WHERE key >= $1 ORDER BY key LIMIT $2");
    last: format!("SELECT {COLUMNS} FROM record WHERE key >= $1 AND key < $2 ORDER BY key DESC LIMIT 1");
    head: "SELECT head FROM head".to_owned();
    lock_head: "SELECT head FROM head FOR UPDATE".to_owned();
    commit: format!("WITH {CHECKS}, {WRITES}, {MOVE_HEAD}");
    add_run: format!("WITH {CHECKS}, {RUN_WRITES}, {MOVE_HEAD}");
    resume: "UPDATE session SET generation = greatest(generation, $2) + 1 FROM head WHERE id = $1
        RETURNING generation, last_group, base, failed, head.head".to_owned();
    show_alive: "UPDATE session SET used_at = now() WHERE id = $1".to_owned();
    end_session: "WITH ended AS (DELETE FROM session WHERE id = $1), released AS (DELETE FROM lease WHERE session = $1)
        UPDATE head SET owner = CASE WHEN owner = $1 THEN NULL ELSE owner END".to_owned();
    begin_lease: "WITH stored AS (
            INSERT INTO lease SELECT id, $2::int8, $3::int8, $4::int8, $5::int8, $6::boolean FROM session WHERE id = $1
            ON CONFLICT (session) DO UPDATE SET epoch = excluded.epoch, fence = excluded.fence, beat = excluded.beat,
                read_to = excluded.read_to, is_strict = excluded.is_strict
            RETURNING session
        ) SELECT head, (SELECT count(*) FROM stored) FROM head".to_owned();
    renew_lease: "UPDATE lease SET fence = $3, beat = greatest(beat, $4), read_to = $5
        WHERE session = $1 AND epoch = $2 AND fence <= $3 AND beat >= $6".to_owned();
    leases: "SELECT session, epoch, fence, beat, read_to, is_strict FROM lease".to_owned();
    expire_lease: "DELETE FROM lease WHERE session = $1 AND epoch = $2 AND beat = $3".to_owned();
    locks_of: LOCKS_OF.to_owned();
    replace_locks: REPLACE_LOCKS.to_owned();
    changed_after: CHANGED_AFTER.to_owned();
    others_alive: "SELECT count(*) FROM session WHERE id <> $1 AND used_at > now() - $2::int8 * interval '1 s'".to_owned();
    log_after: format!("SELECT {LOG_STATE}, {LOG_AFTER}");
    run_pages: "SELECT page, records FROM run_page WHERE version = $1 AND page >= $2 ORDER BY page LIMIT $3".to_owned();
    trim: TRIM.to_owned();
    register: REGISTER.to_owned();
    cursor: format!("SELECT {LOG_STATE}, (SELECT cursor FROM consumer WHERE name = $1) FROM head h");
    advance: "UPDATE consumer SET cursor = greatest(cursor, least($2::int8, head)) FROM head WHERE name = $1".to_owned();
    forget: "DELETE FROM consumer WHERE name = $1".to_owned();
    reserve: "UPDATE head SET head = head + 1 RETURNING head".to_owned();
    stage_records: "INSERT INTO run_record SELECT $1::int8, * FROM unnest($2::bytea[], $3::bytea[], $4::int8[], $5::int8[]) ON CONFLICT DO NOTHING".to_owned();
    stage_page: "INSERT INTO run_page VALUES ($1, $2, $3) ON CONFLICT DO NOTHING".to_owned();
    drop_run_records: "DELETE FROM run_record WHERE version = $1".to_owned();
    drop_run_pages: "DELETE FROM run_page WHERE version = $1".to_owned();
}
