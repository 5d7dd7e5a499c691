// Package pgx lets pgx v5, Go's driver, talk to a running instance: test_pgx.py builds it, and runs each test.
//
// SHOAL_TEST_URL names the instance. Each test makes its own table, and leaves its connection usable.
package pgx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

const patience = 60 * time.Second

// 10^12 rows to look at.
var longSelect = func() string {
	var sources, sum []string
	for i := range 12 {
		sources = append(sources, fmt.Sprintf("digits AS d%d", i))
		sum = append(sum, fmt.Sprintf("d%d.n", i))
	}
	return "SELECT count(*) FROM " + strings.Join(sources, " CROSS JOIN ") + " WHERE " + strings.Join(sum, " + ") + " < 0"
}()

func url(t *testing.T) string {
	t.Helper()
	found := os.Getenv("SHOAL_TEST_URL")
	if found == "" {
		t.Fatal("SHOAL_TEST_URL is not set")
	}
	return found
}

// connect gives a connection that must still work when the test ends.
func connect(t *testing.T, options ...func(*pgx.ConnConfig)) (context.Context, *pgx.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	config, err := pgx.ParseConfig(url(t))
	check(t, err)
	for _, option := range options {
		option(config)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	check(t, err)
	t.Cleanup(func() {
		defer cancel()
		var still string
		check(t, conn.QueryRow(ctx, "SELECT 'still here'").Scan(&still))
		check(t, conn.Close(ctx))
	})
	return ctx, conn
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func execute(t *testing.T, ctx context.Context, conn *pgx.Conn, sql string, args ...any) pgconn.CommandTag {
	t.Helper()
	tag, err := conn.Exec(ctx, sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag
}

func makeTable(t *testing.T, ctx context.Context, conn *pgx.Conn, columns string) string {
	t.Helper()
	name := strings.ToLower("pgx_" + strings.NewReplacer("/", "_", "#", "_").Replace(t.Name()))
	execute(t, ctx, conn, fmt.Sprintf("CREATE TABLE %s (%s)", name, columns))
	return name
}

func expect(t *testing.T, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %#v, want %#v", got, want)
	}
}

func expectCode(t *testing.T, err error, code string) *pgconn.PgError {
	t.Helper()
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		t.Fatalf("want an error %s, got %v", code, err)
	}
	expect(t, answer.Code, code)
	return answer
}

func TestConnect(t *testing.T) {
	_, conn := connect(t, func(config *pgx.ConnConfig) {
		config.RuntimeParams["application_name"] = "gopher"
		config.RuntimeParams["timezone"] = "Asia/Tokyo"
	})
	pg := conn.PgConn()
	expect(t, strings.HasPrefix(pg.ParameterStatus("server_version"), "15.0"), true)
	expect(t, pg.ParameterStatus("application_name"), "gopher")
	expect(t, pg.ParameterStatus("TimeZone"), "Asia/Tokyo")
	expect(t, pg.ParameterStatus("standard_conforming_strings"), "on")
	expect(t, pg.PID() > 0, true)
	expect(t, pg.TxStatus(), byte('I'))
}

// The modes in which pgx sends a query.
var modes = map[string]pgx.QueryExecMode{
	"cacheStatement": pgx.QueryExecModeCacheStatement,
	"cacheDescribe":  pgx.QueryExecModeCacheDescribe,
	"describeExec":   pgx.QueryExecModeDescribeExec,
	"exec":           pgx.QueryExecModeExec,
	"simple":         pgx.QueryExecModeSimpleProtocol,
}

func TestModes(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			ctx, conn := connect(t, func(config *pgx.ConnConfig) { config.DefaultQueryExecMode = mode })
			table := makeTable(t, ctx, conn, "id INT PRIMARY KEY, name TEXT, price DECIMAL, at DATETIME")
			at := time.Date(2024, 7, 1, 10, 30, 0, 123456000, time.UTC)
			for i := range 10 {
				tag := execute(t, ctx, conn, "INSERT INTO "+table+" VALUES ($1, $2, $3, $4)",
					i, fmt.Sprint("it's ", i), pgtype.Numeric{Int: big.NewInt(int64(i)), Exp: -1, Valid: true}, at)
				expect(t, tag.String(), "INSERT 0 1")
			}
			rows, err := conn.Query(ctx, "SELECT id, name, price::double, at FROM "+table+" WHERE id >= $1 ORDER BY id", 8)
			check(t, err)
			type row struct {
				ID    int64
				Name  string
				Price float64
				At    time.Time
			}
			found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
			check(t, err)
			for i := range found {
				found[i].At = found[i].At.UTC()
			}
			expect(t, found, []row{{8, "it's 8", 0.8, at}, {9, "it's 9", 0.9, at}})
		})
	}
}

func TestPreparedStatements(t *testing.T) {
	ctx, conn := connect(t)
	table := makeTable(t, ctx, conn, "id INT PRIMARY KEY, price DECIMAL, tags TEXT[], at DATETIME")
	description, err := conn.Prepare(ctx, "find", "SELECT id, price, tags, at FROM "+table+" WHERE price > $1 AND at < $2")
	check(t, err)
	expect(t, description.ParamOIDs, []uint32{pgtype.NumericOID, pgtype.TimestamptzOID})
	var oids []uint32
	for _, field := range description.Fields {
		oids = append(oids, field.DataTypeOID)
	}
	expect(t, oids, []uint32{pgtype.Int8OID, pgtype.NumericOID, pgtype.TextArrayOID, pgtype.TimestamptzOID})
	execute(t, ctx, conn, "INSERT INTO "+table+" VALUES (1, 1.5, NULL, CURRENT_TIMESTAMP)")
	var id int64
	for range 20 {
		check(t, conn.QueryRow(ctx, "find", 1.25, time.Now().Add(time.Hour)).Scan(&id, nil, nil, nil))
		expect(t, id, int64(1))
	}
	check(t, conn.Deallocate(ctx, "find"))
	check(t, conn.DeallocateAll(ctx))
}

func array[T any](values ...T) []T { return values }

func pointers[T any](values []T) []*T {
	found := make([]*T, 0, len(values)+1)
	for i := range values {
		found = append(found, &values[i])
	}
	return append(found, nil)
}

// roundTrip sends values to a column, in both formats, and wants the same ones back, in both formats.
func roundTrip[T any](t *testing.T, sqlType string, same func(a, b T) bool, values ...T) {
	ctx, conn := connect(t)
	table := makeTable(t, ctx, conn, "id INT PRIMARY KEY, v "+sqlType)
	insert, find := "INSERT INTO "+table+" VALUES ($1, $2)", "SELECT v FROM "+table+" WHERE id = $1"
	for i, value := range values {
		execute(t, ctx, conn, insert, i, value)
		for _, format := range []int16{pgx.TextFormatCode, pgx.BinaryFormatCode} {
			var got T
			check(t, conn.QueryRow(ctx, find, pgx.QueryResultFormats{format}, i).Scan(&got))
			if !same(got, value) {
				t.Fatalf("%s in format %d: got %#v, want %#v", sqlType, format, got, value)
			}
		}
		if !strings.HasSuffix(sqlType, "[]") {
			var id int
			check(t, conn.QueryRow(ctx, "SELECT id FROM "+table+" WHERE v = $1", value).Scan(&id))
			expect(t, id, i)
		}
	}
	execute(t, ctx, conn, insert, -1, nil)
	got := new(T)
	check(t, conn.QueryRow(ctx, find, -1).Scan(&got))
	if got != nil {
		t.Fatalf("got %#v, want NULL", *got)
	}
	if !strings.HasSuffix(sqlType, "[]") {
		all := pointers(values)
		execute(t, ctx, conn, "CREATE TABLE "+table+"_array (id INT PRIMARY KEY, v "+sqlType+"[])")
		execute(t, ctx, conn, "INSERT INTO "+table+"_array VALUES (1, $1), (2, $2)", all, []T{})
		for _, format := range []int16{pgx.TextFormatCode, pgx.BinaryFormatCode} {
			var back, empty []*T
			query := "SELECT v FROM " + table + "_array WHERE id = $1"
			check(t, conn.QueryRow(ctx, query, pgx.QueryResultFormats{format}, 1).Scan(&back))
			check(t, conn.QueryRow(ctx, query, pgx.QueryResultFormats{format}, 2).Scan(&empty))
			expect(t, len(empty), 0)
			expect(t, len(back), len(all))
			for i := range all {
				if (back[i] == nil) != (all[i] == nil) || back[i] != nil && !same(*back[i], *all[i]) {
					t.Fatalf("%s[] in format %d: element %d differs", sqlType, format, i)
				}
			}
		}
	}
}

func equal[T comparable](a, b T) bool { return a == b }

func TestInt(t *testing.T) {
	roundTrip(t, "INT", equal, array[int64](0, 1, -1, 32767, -32769, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64)...)
}

func TestDouble(t *testing.T) {
	roundTrip(t, "DOUBLE", equal, array(0, 1.5, -1.5, 0.1, math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1), math.Inf(-1))...)
}

func TestText(t *testing.T) {
	roundTrip(t, "TEXT", equal, array("", "plain", "it's", `quo"ted`, `back\slash`, "жираф 🦒", "{a,b}", "NULL", " blanks ", "line\nend")...)
}

func TestBoolean(t *testing.T) {
	roundTrip(t, "BOOLEAN", equal, true, false)
}

func TestUUID(t *testing.T) {
	roundTrip(t, "UUID", equal, [16]byte{}, [16]byte{0x6f, 0x2b, 0xa4, 0xc4, 0x0a, 0x4c, 0x4d, 0x79, 0x86, 0xae, 0x43, 0xd4, 0xf8, 0x4b, 0x70, 0xe1})
}

func TestDatetime(t *testing.T) {
	same := func(a, b time.Time) bool { return a.Equal(b) }
	roundTrip(t, "DATETIME", same, array(
		time.Unix(0, 0),
		time.Date(2024, 2, 29, 12, 0, 0, 1000, time.FixedZone("", 5*3600+45*60)),
		time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC),
	)...)
}

func numeric(text string) pgtype.Numeric {
	var found pgtype.Numeric
	if err := found.Scan(text); err != nil {
		panic(err)
	}
	return found
}

func TestDecimal(t *testing.T) {
	asRat := func(n pgtype.Numeric) *big.Rat {
		text, _ := n.MarshalJSON()
		found, _ := new(big.Rat).SetString(string(text))
		return found
	}
	same := func(a, b pgtype.Numeric) bool { return a.Valid && b.Valid && asRat(a).Cmp(asRat(b)) == 0 }
	roundTrip(t, "DECIMAL", same,
		numeric("0"), numeric("1.5"), numeric("-1.5"), numeric("100"), numeric("0.00001"),
		numeric("12345678901234567890123456789012345678"),
		numeric("-0.00000000000000000000000000000000000001"),
		numeric("1234567890123456789.0123456789012345678"))
}

func TestJSON(t *testing.T) {
	ctx, conn := connect(t)
	table := makeTable(t, ctx, conn, "id INT PRIMARY KEY, j JSON")
	document := map[string]any{"name": "жираф", "legs": 4.0, "tags": []any{"tall", nil, true}}
	execute(t, ctx, conn, "INSERT INTO "+table+" VALUES (1, $1), (2, NULL)", document)
	for _, format := range []int16{pgx.TextFormatCode, pgx.BinaryFormatCode} {
		var back map[string]any
		check(t, conn.QueryRow(ctx, "SELECT j FROM "+table+" WHERE id = 1", pgx.QueryResultFormats{format}).Scan(&back))
		expect(t, back, document)
	}
	// What Picodata's driver reads to find the instances that are online.
	var address string
	var state []any
	check(t, conn.QueryRow(ctx, `SELECT ppa.address, pi.current_state FROM _pico_peer_address AS ppa
		JOIN _pico_instance AS pi ON ppa.raft_id = pi.raft_id WHERE connection_type = 'pgproto'`).Scan(&address, &state))
	expect(t, state[0], "Online")
	var raw json.RawMessage
	check(t, conn.QueryRow(ctx, "SELECT distribution FROM _pico_table WHERE name = $1", table).Scan(&raw))
	expect(t, json.Valid(raw), true)
}

func TestBatch(t *testing.T) {
	ctx, conn := connect(t)
	table := makeTable(t, ctx, conn, "id INT PRIMARY KEY, t TEXT")
	batch := &pgx.Batch{}
	for i := range 200 {
		batch.Queue("INSERT INTO "+table+" VALUES ($1, $2)", i, fmt.Sprint(i))
	}
	var count int
	batch.Queue("SELECT count(*) FROM " + table).QueryRow(func(row pgx.Row) error { return row.Scan(&count) })
	check(t, conn.SendBatch(ctx, batch).Close())
	expect(t, count, 200)

	failing := &pgx.Batch{}
	failing.Queue("INSERT INTO "+table+" VALUES ($1, $2)", 1000, "before")
	failing.Queue("INSERT INTO "+table+" VALUES ($1, $2)", 1, "twice")
	failing.Queue("INSERT INTO "+table+" VALUES ($1, $2)", 1001, "behind")
	expectCode(t, conn.SendBatch(ctx, failing).Close(), "23505")
	check(t, conn.QueryRow(ctx, "SELECT count(*) FROM "+table+" WHERE id >= 1000").Scan(&count))
	expect(t, count, 1) // there is no transaction around a batch yet: what came before the error stands
}

func TestErrorCodes(t *testing.T) {
	ctx, conn := connect(t)
	table := makeTable(t, ctx, conn, "id INT PRIMARY KEY, t TEXT NOT NULL, d DECIMAL(4, 2)")
	execute(t, ctx, conn, "INSERT INTO "+table+" VALUES (1, 'x', 1)")
	for sql, code := range map[string]string{
		"SELEC 1":                                        "42601",
		"SELECT * FROM nothing":                          "42P01",
		"SELECT nothing FROM " + table:                   "42703",
		"INSERT INTO " + table + " VALUES (2, 2, 2)":     "42804",
		"INSERT INTO " + table + " VALUES (1, 'y', 1)":   "23505",
		"INSERT INTO " + table + " VALUES (2, NULL, 1)":  "23502",
		"INSERT INTO " + table + " VALUES (2, 'y', 100)": "22003",
		"SELECT 1 / 0":                                   "22012",
		"SELECT 'x'::int":                                "22P02",
		"COPY " + table + " FROM STDIN":                  "0A000",
	} {
		_, err := conn.Exec(ctx, sql)
		answer := expectCode(t, err, code)
		expect(t, answer.Severity, "ERROR")
		if code == "42703" {
			expect(t, answer.Position, int32(8))
		}
	}
	_, err := conn.CopyFrom(ctx, pgx.Identifier{table}, []string{"id", "t"}, pgx.CopyFromRows([][]any{{int64(5), "x"}}))
	expectCode(t, err, "0A000")
}

func TestTransactions(t *testing.T) {
	ctx, conn := connect(t)
	table := makeTable(t, ctx, conn, "id INT PRIMARY KEY")
	tx, err := conn.Begin(ctx)
	check(t, err)
	expect(t, conn.PgConn().TxStatus(), byte('T'))
	_, err = tx.Exec(ctx, "INSERT INTO "+table+" VALUES (1)")
	check(t, err)
	check(t, tx.Commit(ctx))
	expect(t, conn.PgConn().TxStatus(), byte('I'))

	tx, err = conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	check(t, err)
	_, err = tx.Exec(ctx, "INSERT INTO "+table+" VALUES (2)")
	expectCode(t, err, "25006")
	expect(t, conn.PgConn().TxStatus(), byte('E'))
	_, err = tx.Exec(ctx, "SELECT 1")
	expectCode(t, err, "25P02")
	check(t, tx.Rollback(ctx))
}

// pgx closes a connection whose ROLLBACK fails: it can't know better than that something is wrong.
func TestRollbackAfterAWrite(t *testing.T) {
	ctx, conn := connect(t)
	table := makeTable(t, ctx, conn, "id INT PRIMARY KEY")
	other, err := pgx.Connect(ctx, url(t))
	check(t, err)
	tx, err := other.Begin(ctx)
	check(t, err)
	_, err = tx.Exec(ctx, "INSERT INTO "+table+" VALUES (1)")
	check(t, err)
	expectCode(t, tx.Rollback(ctx), "0A000")
	var count int
	check(t, conn.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&count))
	expect(t, count, 1)
}

func TestCancel(t *testing.T) {
	ctx, conn := connect(t)
	// The server is asked to cancel, so the connection lives on.
	_, err := conn.Exec(ctx, "SET statement_timeout = '100ms'")
	check(t, err)
	_, err = conn.Exec(ctx, longSelect)
	expectCode(t, err, "57014")
	_, err = conn.Exec(ctx, "SET statement_timeout = 0")
	check(t, err)

	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, longSelect)
		done <- err
	}()
	for {
		check(t, conn.PgConn().CancelRequest(ctx))
		select {
		case err := <-done:
			expectCode(t, err, "57014")
			return
		case <-time.After(50 * time.Millisecond): // lost on a statement that had not begun: say it again
		}
	}
}

func TestContextEnds(t *testing.T) {
	config, err := pgx.ParseConfig(url(t))
	check(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	check(t, err)
	short, cancelShort := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancelShort()
	_, err = conn.Exec(short, longSelect)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if !conn.IsClosed() {
		t.Fatal("pgx closes a connection whose context ended")
	}
	// The server's reader is free again: others are served.
	_, other := connect(t)
	var count int
	check(t, other.QueryRow(ctx, "SELECT count(*) FROM digits").Scan(&count))
	expect(t, count, 10)
}

func TestPool(t *testing.T) {
	ctx, conn := connect(t)
	table := makeTable(t, ctx, conn, "id INT PRIMARY KEY")
	pool, err := pgxpool.New(ctx, url(t)+"?pool_max_conns=8")
	check(t, err)
	defer pool.Close()
	done := make(chan error, 100)
	for i := range 100 {
		go func() {
			_, err := pool.Exec(ctx, "INSERT INTO "+table+" VALUES ($1)", i)
			done <- err
		}()
	}
	for range 100 {
		check(t, <-done)
	}
	var count int
	check(t, pool.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&count))
	expect(t, count, 100)
}

func TestLargeAnswer(t *testing.T) {
	ctx, conn := connect(t)
	rows, err := conn.Query(ctx, "SELECT a.n * 1000 + b.n * 100 + c.n * 10 + d.n AS n FROM digits a, digits b, digits c, digits d ORDER BY n")
	check(t, err)
	seen := int64(0)
	for rows.Next() {
		var n int64
		check(t, rows.Scan(&n))
		expect(t, n, seen)
		seen++
	}
	check(t, rows.Err())
	expect(t, seen, int64(10_000))
}

func TestSchemaChangeUnderACachedStatement(t *testing.T) {
	ctx, conn := connect(t)
	table := makeTable(t, ctx, conn, "id INT PRIMARY KEY")
	execute(t, ctx, conn, "INSERT INTO "+table+" VALUES (1)")
	query := "SELECT * FROM " + table
	columns := func() (int, error) {
		rows, err := conn.Query(ctx, query)
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		count := 0
		for rows.Next() {
			count = len(rows.RawValues())
		}
		return count, rows.Err()
	}
	count, err := columns()
	check(t, err)
	expect(t, count, 1)
	execute(t, ctx, conn, "ALTER TABLE "+table+" ADD COLUMN t TEXT")
	// pgx drops a cached statement when told that its plan is stale; the attempt itself fails.
	if _, err = columns(); err != nil {
		expectCode(t, err, "0A000")
		_, _ = columns()
	}
	count, err = columns()
	check(t, err)
	expect(t, count, 2)
}

func TestNotices(t *testing.T) {
	var codes []string
	ctx, conn := connect(t, func(config *pgx.ConnConfig) {
		config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) { codes = append(codes, notice.Code) }
	})
	execute(t, ctx, conn, "BEGIN")
	execute(t, ctx, conn, "BEGIN")
	execute(t, ctx, conn, "COMMIT")
	expect(t, codes, []string{"25001"})
}
