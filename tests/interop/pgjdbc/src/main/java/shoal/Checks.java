package shoal;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.math.BigDecimal;
import java.sql.Array;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.Instant;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * pgJDBC against a running instance.
 *
 * <p>{@code Checks URL} runs every check, each on a table of its own, and prints one line for each: {@code ok NAME},
 * or {@code failed NAME} with the trace behind it.
 */
public final class Checks {
    /** 10^12 rows to look at. */
    private static final String LONG_SELECT = "SELECT count(*) FROM "
            + IntStream.range(0, 12).mapToObj(i -> "digits AS d" + i).collect(Collectors.joining(" CROSS JOIN "))
            + " WHERE "
            + IntStream.range(0, 12).mapToObj(i -> "d" + i + ".n").collect(Collectors.joining(" + "))
            + " < 0";

    private static final String NUMBERS = "SELECT a.n * 1000 + b.n * 100 + c.n * 10 + d.n AS n"
            + " FROM digits a, digits b, digits c, digits d ORDER BY n";

    @Retention(RetentionPolicy.RUNTIME)
    private @interface Check {}

    private final String url;
    private final String table;

    private Checks(String url, String name) {
        this.url = url;
        this.table = "jdbc_" + name.toLowerCase();
    }

    public static void main(String[] arguments) throws Exception {
        List<Method> checks = Arrays.stream(Checks.class.getDeclaredMethods())
                .filter(method -> method.isAnnotationPresent(Check.class))
                .sorted(Comparator.comparing(Method::getName))
                .toList();
        for (Method check : checks) {
            try {
                check.invoke(new Checks(arguments[0], check.getName()));
                System.out.println("ok " + check.getName());
            } catch (InvocationTargetException failure) {
                System.out.println("failed " + check.getName());
                failure.getCause().printStackTrace(System.out);
            }
        }
    }

    // --- connecting ---

    private Connection connect(String... settings) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", "admin");
        properties.setProperty("loginTimeout", "60");
        for (int i = 0; i < settings.length; i += 2) {
            properties.setProperty(settings[i], settings[i + 1]);
        }
        return DriverManager.getConnection(url, properties);
    }

    @Check
    void connects() throws SQLException {
        try (Connection connection = connect("ApplicationName", "coffee", "readOnly", "false")) {
            DatabaseMetaData about = connection.getMetaData();
            expect("PostgreSQL", about.getDatabaseProductName());
            expect(15, about.getDatabaseMajorVersion());
            expect(true, about.getDatabaseProductVersion().startsWith("15.0"));
            expect(Connection.TRANSACTION_READ_COMMITTED, connection.getTransactionIsolation());
            expect(true, connection.isValid(30));
            expect(false, connection.isReadOnly());
            expect("coffee", one(connection, "SHOW application_name"));
            connection.setClientInfo("ApplicationName", "tea");
            expect("tea", one(connection, "SHOW application_name"));
            expect(true, ((String) one(connection, "SELECT version()")).startsWith("Shoal "));
        }
    }

    @Check
    void schemaAndCatalogOfTheConnection() throws SQLException {
        try (Connection connection = connect()) {
            expect("shoal", connection.getCatalog());
            expect("public", connection.getSchema());
        }
    }

    // --- types ---

    /** Sends each value as text and, once it is prepared on the server, as binary; both come back. */
    private <T> void roundTrip(String sqlType, Class<T> type, List<T> values) throws SQLException {
        for (String threshold : List.of("0", "-1")) { // never prepared by name, always with binary at once
            String name = table + (threshold.equals("0") ? "_text" : "_binary");
            try (Connection connection = connect("prepareThreshold", threshold)) {
                execute(connection, "CREATE TABLE " + name + " (id INT PRIMARY KEY, v " + sqlType + ")");
                try (PreparedStatement insert = connection.prepareStatement("INSERT INTO " + name + " VALUES (?, ?)")) {
                    for (int i = 0; i < values.size(); i++) {
                        insert.setInt(1, i);
                        insert.setObject(2, values.get(i));
                        expect(1, insert.executeUpdate());
                    }
                    insert.setInt(1, -1);
                    insert.setNull(2, Types.OTHER);
                    expect(1, insert.executeUpdate());
                }
                try (PreparedStatement find = connection.prepareStatement("SELECT v FROM " + name + " WHERE id = ?")) {
                    for (int round = 0; round < 2; round++) {
                        for (int i = 0; i < values.size(); i++) {
                            find.setLong(1, i);
                            try (ResultSet rows = find.executeQuery()) {
                                expect(true, rows.next());
                                expectSame(values.get(i), rows.getObject(1, type));
                                expect(false, rows.wasNull());
                                expect(false, rows.next());
                            }
                        }
                        find.setLong(1, -1);
                        try (ResultSet rows = find.executeQuery()) {
                            expect(true, rows.next());
                            expect(null, rows.getObject(1));
                        }
                    }
                }
                try (PreparedStatement find = connection.prepareStatement("SELECT id FROM " + name + " WHERE v = ?")) {
                    for (int i = 0; i < values.size(); i++) {
                        find.setObject(1, values.get(i));
                        try (ResultSet rows = find.executeQuery()) {
                            expect(true, rows.next());
                            expect((long) i, rows.getLong(1));
                        }
                    }
                }
            }
        }
    }

    @Check
    void ints() throws SQLException {
        roundTrip("INT", Long.class, List.of(0L, 1L, -1L, 1L << 31, Long.MAX_VALUE, Long.MIN_VALUE));
    }

    @Check
    void smallerInts() throws SQLException {
        try (Connection connection = connect()) {
            execute(connection, "CREATE TABLE " + table + " (id INT PRIMARY KEY)");
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO " + table + " VALUES (?)");
                    PreparedStatement find = connection.prepareStatement("SELECT id FROM " + table + " WHERE id = ?")) {
                for (int value : new int[] {0, 1, -1, 32_767, 40_000, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
                    insert.setInt(1, value);
                    insert.executeUpdate();
                    find.setShort(1, (short) value);
                    if (value != (short) value) {
                        find.setInt(1, value);
                    }
                    try (ResultSet rows = find.executeQuery()) {
                        expect(true, rows.next());
                        expect(value, rows.getInt(1));
                    }
                }
            }
        }
    }

    @Check
    void doubles() throws SQLException {
        roundTrip("DOUBLE", Double.class, List.of(
                0.0, 1.5, -1.5, 0.1, Double.MAX_VALUE, Double.MIN_VALUE,
                Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY));
    }

    @Check
    void decimals() throws SQLException {
        roundTrip("DECIMAL", BigDecimal.class, List.of(
                new BigDecimal("0"), new BigDecimal("1.5"), new BigDecimal("-1.5"), new BigDecimal("100"),
                new BigDecimal("12345678901234567890123456789012345678"),
                new BigDecimal("-0.00000000000000000000000000000000000001"),
                new BigDecimal("1234567890123456789.0123456789012345678")));
    }

    @Check
    void texts() throws SQLException {
        roundTrip("TEXT", String.class, List.of(
                "", "plain", "it's", "quo\"ted", "back\\slash", "жираф \uD83E\uDD92", "{a,b}", "NULL", " x ", "a\nb"));
    }

    @Check
    void booleans() throws SQLException {
        roundTrip("BOOLEAN", Boolean.class, List.of(true, false));
    }

    @Check
    void uuids() throws SQLException {
        roundTrip("UUID", UUID.class, List.of(new UUID(0, 0), new UUID(-1, -1), UUID.randomUUID()));
    }

    @Check
    void datetimes() throws SQLException {
        roundTrip("DATETIME", OffsetDateTime.class, List.of(
                OffsetDateTime.ofInstant(Instant.EPOCH, ZoneOffset.UTC),
                OffsetDateTime.of(2024, 2, 29, 12, 0, 0, 1000, ZoneOffset.ofHoursMinutes(5, 45)),
                OffsetDateTime.of(1000, 1, 1, 0, 0, 0, 0, ZoneOffset.UTC),
                OffsetDateTime.of(9999, 12, 31, 23, 59, 59, 999_999_000, ZoneOffset.UTC)));
    }

    @Check
    void timestampsOfOldCode() throws SQLException {
        try (Connection connection = connect()) {
            execute(connection, "CREATE TABLE " + table + " (id INT PRIMARY KEY, at DATETIME)");
            Timestamp at = Timestamp.from(Instant.parse("2024-07-01T10:30:00.123456Z"));
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO " + table + " VALUES (1, ?)")) {
                insert.setTimestamp(1, at);
                insert.executeUpdate();
            }
            try (Statement statement = connection.createStatement();
                    ResultSet rows = statement.executeQuery("SELECT at FROM " + table)) {
                expect(true, rows.next());
                expect(at, rows.getTimestamp(1));
            }
        }
    }

    @Check
    void arrays() throws SQLException {
        record Case(String sqlType, String elementType, Object[] elements) {}
        List<Case> cases = List.of(
                new Case("INT[]", "int8", new Long[] {1L, null, Long.MAX_VALUE}),
                new Case("DOUBLE[]", "float8", new Double[] {1.5, null, Double.MAX_VALUE}),
                new Case("DECIMAL[]", "numeric", new BigDecimal[] {new BigDecimal("1.5"), null, new BigDecimal("7")}),
                new Case("TEXT[]", "text", new String[] {"a", null, "", "NULL", "b,c", "quo\"te", "back\\slash", "{}"}),
                new Case("BOOLEAN[]", "bool", new Boolean[] {true, null, false}),
                new Case("UUID[]", "uuid", new UUID[] {new UUID(1, 2), null}));
        for (String threshold : List.of("0", "-1")) {
            try (Connection connection = connect("prepareThreshold", threshold)) {
                for (Case each : cases) {
                    String name = table + "_" + each.elementType + (threshold.equals("0") ? "_t" : "_b");
                    execute(connection, "CREATE TABLE " + name + " (id INT PRIMARY KEY, v " + each.sqlType + ")");
                    Array sent = connection.createArrayOf(each.elementType, each.elements);
                    Array empty = connection.createArrayOf(each.elementType, new Object[0]);
                    String insert = "INSERT INTO " + name + " VALUES (1, ?), (2, ?)";
                    try (PreparedStatement statement = connection.prepareStatement(insert)) {
                        statement.setArray(1, sent);
                        statement.setArray(2, empty);
                        expect(2, statement.executeUpdate());
                    }
                    String find = "SELECT v FROM " + name + " ORDER BY id";
                    try (PreparedStatement statement = connection.prepareStatement(find);
                            ResultSet rows = statement.executeQuery()) {
                        expect(true, rows.next());
                        expect(Arrays.asList(each.elements), Arrays.asList((Object[]) rows.getArray(1).getArray()));
                        expect(true, rows.next());
                        expect(0, ((Object[]) rows.getArray(1).getArray()).length);
                    }
                }
            }
        }
    }

    @Check
    void json() throws SQLException {
        try (Connection connection = connect()) {
            execute(connection, "CREATE TABLE " + table + " (id INT PRIMARY KEY, j JSON)");
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO " + table + " VALUES (1, ?)")) {
                insert.setObject(1, "{\"a\": [1, null, \"x\"]}", Types.OTHER);
                insert.executeUpdate();
            }
            String found = (String) one(connection, "SELECT j FROM " + table);
            expect("{\"a\":[1,null,\"x\"]}", found.replace(" ", ""));
            expect(true, ((String) one(connection, "SELECT current_state FROM _pico_instance")).contains("Online"));
        }
    }

    // --- statements ---

    @Check
    void preparedOnTheServerAfterFiveTimes() throws SQLException {
        try (Connection connection = connect("prepareThreshold", "5")) {
            execute(connection, "CREATE TABLE " + table + " (id INT PRIMARY KEY, t TEXT)");
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO " + table + " VALUES (?, ?)")) {
                for (int i = 0; i < 20; i++) {
                    insert.setInt(1, i);
                    insert.setString(2, "row " + i);
                    expect(1, insert.executeUpdate());
                }
            }
            try (PreparedStatement find = connection.prepareStatement("SELECT t FROM " + table + " WHERE id = ?")) {
                for (int i = 0; i < 20; i++) {
                    find.setInt(1, i);
                    try (ResultSet rows = find.executeQuery()) {
                        expect(true, rows.next());
                        expect("row " + i, rows.getString(1));
                    }
                }
            }
        }
    }

    @Check
    void simpleQueryMode() throws SQLException {
        try (Connection connection = connect("preferQueryMode", "simple")) {
            execute(connection, "CREATE TABLE " + table + " (id INT PRIMARY KEY, t TEXT, n DECIMAL)");
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO " + table + " VALUES (?, ?, ?)")) {
                insert.setInt(1, 1);
                insert.setString(2, "it's");
                insert.setBigDecimal(3, new BigDecimal("1.50"));
                expect(1, insert.executeUpdate());
            }
            expect("it's", one(connection, "SELECT t FROM " + table + " WHERE id = 1"));
        }
    }

    @Check
    void batches() throws SQLException {
        for (String rewrite : List.of("false", "true")) {
            String name = table + "_" + rewrite;
            try (Connection connection = connect("reWriteBatchedInserts", rewrite)) {
                execute(connection, "CREATE TABLE " + name + " (id INT PRIMARY KEY, t TEXT)");
                try (PreparedStatement insert = connection.prepareStatement("INSERT INTO " + name + " VALUES (?, ?)")) {
                    for (int i = 0; i < 500; i++) {
                        insert.setInt(1, i);
                        insert.setString(2, "row " + i);
                        insert.addBatch();
                    }
                    expect(500, insert.executeBatch().length);
                }
                expect(500L, one(connection, "SELECT count(*) FROM " + name));
                try (Statement statement = connection.createStatement()) {
                    statement.addBatch("UPDATE " + name + " SET t = 'x' WHERE id < 10");
                    statement.addBatch("DELETE FROM " + name + " WHERE id >= 490");
                    expect(List.of(10, 10), Arrays.stream(statement.executeBatch()).boxed().toList());
                }
                try (PreparedStatement insert = connection.prepareStatement("INSERT INTO " + name + " VALUES (?, ?)")) {
                    for (int id : new int[] {1000, 1, 1001}) {
                        insert.setInt(1, id);
                        insert.setString(2, "");
                        insert.addBatch();
                    }
                    expectState("23505", insert::executeBatch);
                }
                expect(true, connection.isValid(30));
            }
        }
    }

    @Check
    void fetchSizeReadsInParts() throws SQLException {
        try (Connection connection = connect()) {
            connection.setAutoCommit(false);
            for (int fetchSize : new int[] {1000, 777, 1}) {
                try (PreparedStatement statement = connection.prepareStatement(NUMBERS)) {
                    statement.setFetchSize(fetchSize);
                    statement.setMaxRows(fetchSize == 1 ? 50 : 0);
                    try (ResultSet rows = statement.executeQuery()) {
                        long seen = 0;
                        while (rows.next()) {
                            expect(seen++, rows.getLong(1));
                            if (seen == 10) { // another statement meanwhile; the portal stays where it is
                                expect(10L, one(connection, "SELECT count(*) FROM digits"));
                            }
                        }
                        expect(fetchSize == 1 ? 50L : 10_000L, seen);
                    }
                }
            }
            try (PreparedStatement statement = connection.prepareStatement(NUMBERS)) {
                statement.setFetchSize(10);
                try (ResultSet rows = statement.executeQuery()) {
                    expect(true, rows.next()); // left in the middle: pgJDBC closes the portal later
                }
            }
            connection.commit();
        }
    }

    @Check
    void maxRows() throws SQLException {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            statement.setMaxRows(3);
            try (ResultSet rows = statement.executeQuery("SELECT n FROM digits ORDER BY n")) {
                List<Long> found = new ArrayList<>();
                while (rows.next()) {
                    found.add(rows.getLong(1));
                }
                expect(List.of(0L, 1L, 2L), found);
            }
        }
    }

    @Check
    void metaDataOfRowsAndParameters() throws SQLException {
        try (Connection connection = connect()) {
            execute(connection, "CREATE TABLE " + table + " (id INT PRIMARY KEY, name TEXT, price DECIMAL(10, 2),"
                    + " height DOUBLE, ok BOOLEAN, token UUID, at DATETIME, tags TEXT[], about JSON)");
            try (PreparedStatement statement = connection.prepareStatement("SELECT * FROM " + table + " WHERE id = ?")) {
                ResultSetMetaData columns = statement.getMetaData();
                Map<String, String> found = new TreeMap<>();
                for (int i = 1; i <= columns.getColumnCount(); i++) {
                    found.put(columns.getColumnLabel(i), columns.getColumnTypeName(i));
                }
                expect(Map.of("id", "int8", "name", "text", "price", "numeric", "height", "float8", "ok", "bool",
                        "token", "uuid", "at", "timestamptz", "tags", "_text", "about", "json"), found);
                expect(Types.BIGINT, columns.getColumnType(1));
                expect(10, columns.getPrecision(3));
                expect(2, columns.getScale(3));
                expect("", columns.getTableName(1));
                ParameterMetaData parameters = statement.getParameterMetaData();
                expect(1, parameters.getParameterCount());
                expect("int8", parameters.getParameterTypeName(1));
            }
        }
    }

    @Check
    void returning() throws SQLException {
        try (Connection connection = connect()) {
            execute(connection, "CREATE TABLE " + table + " (id INT PRIMARY KEY, t TEXT)");
            String insert = "INSERT INTO " + table + " VALUES (7, 'seven')";
            try (PreparedStatement statement = connection.prepareStatement(insert, new String[] {"id"})) {
                expect(1, statement.executeUpdate());
                try (ResultSet keys = statement.getGeneratedKeys()) {
                    expect(true, keys.next());
                    expect(7L, keys.getLong("id"));
                }
            }
        }
    }

    // --- errors, transactions, ends ---

    @Check
    void statesOfErrors() throws SQLException {
        try (Connection connection = connect()) {
            execute(connection, "CREATE TABLE " + table + " (id INT PRIMARY KEY, t TEXT NOT NULL, d DECIMAL(4, 2))");
            execute(connection, "INSERT INTO " + table + " VALUES (1, 'x', 1)");
            Map<String, String> cases = Map.of(
                    "SELEC 1", "42601",
                    "SELECT * FROM nothing", "42P01",
                    "SELECT nothing FROM " + table, "42703",
                    "INSERT INTO " + table + " VALUES (2, 2, 2)", "42804",
                    "INSERT INTO " + table + " VALUES (1, 'y', 1)", "23505",
                    "INSERT INTO " + table + " VALUES (2, NULL, 1)", "23502",
                    "INSERT INTO " + table + " VALUES (2, 'y', 100)", "22003",
                    "SELECT 1 / 0", "22012",
                    "SELECT 'x'::int", "22P02",
                    "COPY " + table + " FROM STDIN", "0A000");
            for (Map.Entry<String, String> each : cases.entrySet()) {
                expectState(each.getValue(), () -> execute(connection, each.getKey()));
                expect(1L, one(connection, "SELECT count(*) FROM " + table));
            }
        }
    }

    @Check
    void transactions() throws SQLException {
        try (Connection connection = connect("readOnlyMode", "always")) {
            execute(connection, "CREATE TABLE " + table + " (id INT PRIMARY KEY)");
            connection.setAutoCommit(false);
            execute(connection, "INSERT INTO " + table + " VALUES (1)");
            connection.commit();
            one(connection, "SELECT count(*) FROM " + table);
            connection.rollback(); // it has only read

            execute(connection, "INSERT INTO " + table + " VALUES (2)");
            expectState("0A000", connection::rollback);
            connection.setAutoCommit(true);
            expect(2L, one(connection, "SELECT count(*) FROM " + table));

            connection.setReadOnly(true);
            expectState("25006", () -> execute(connection, "INSERT INTO " + table + " VALUES (3)"));
            connection.setAutoCommit(false);
            expectState("25006", () -> execute(connection, "INSERT INTO " + table + " VALUES (3)"));
            expectState("25P02", () -> execute(connection, "SELECT 1"));
            connection.rollback();
            connection.setAutoCommit(true);
            connection.setReadOnly(false);
            execute(connection, "INSERT INTO " + table + " VALUES (3)");

            connection.setAutoCommit(false);
            Savepoint unchanged = connection.setSavepoint();
            expectState("22012", () -> execute(connection, "SELECT 1 / 0"));
            connection.rollback(unchanged);
            expect(3L, one(connection, "SELECT count(*) FROM " + table));
            Savepoint changed = connection.setSavepoint("changed");
            execute(connection, "INSERT INTO " + table + " VALUES (4)");
            expectState("0A000", () -> connection.rollback(changed));
            expectState("0A000", connection::rollback);
            expect(4L, one(connection, "SELECT count(*) FROM " + table));
            connection.rollback();
        }
    }

    @Check
    void queryTimeoutCancels() throws SQLException {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            expectState("57014", () -> statement.executeQuery(LONG_SELECT));
            statement.setQueryTimeout(0);
            expect(10L, one(connection, "SELECT count(*) FROM digits"));
        }
    }

    @Check
    void cancelFromAnotherThread() throws Exception {
        try (Connection connection = connect(); Statement statement = connection.createStatement()) {
            CompletableFuture<String> state = CompletableFuture.supplyAsync(() -> {
                try {
                    statement.executeQuery(LONG_SELECT);
                    return "it ended";
                } catch (SQLException error) {
                    return error.getSQLState();
                }
            });
            while (true) { // lost on a statement that has not begun: so it is said until it is heard
                statement.cancel();
                try {
                    expect("57014", state.get(50, TimeUnit.MILLISECONDS));
                    break;
                } catch (TimeoutException notYet) {
                    continue;
                }
            }
            expect(10L, one(connection, "SELECT count(*) FROM digits"));
        }
    }

    @Check
    void schemaChangeUnderAPreparedStatement() throws SQLException {
        try (Connection connection = connect("prepareThreshold", "1")) {
            execute(connection, "CREATE TABLE " + table + " (id INT PRIMARY KEY)");
            execute(connection, "INSERT INTO " + table + " VALUES (1)");
            try (PreparedStatement star = connection.prepareStatement("SELECT * FROM " + table)) {
                for (int i = 0; i < 3; i++) {
                    try (ResultSet rows = star.executeQuery()) {
                        expect(1, rows.getMetaData().getColumnCount());
                    }
                }
                execute(connection, "ALTER TABLE " + table + " ADD COLUMN t TEXT");
                try (ResultSet rows = star.executeQuery()) { // pgJDBC prepares anew when its plan is stale
                    expect(2, rows.getMetaData().getColumnCount());
                }
            }
        }
    }

    @Check
    void reflectionSaysWhatIsMissing() throws SQLException {
        try (Connection connection = connect()) {
            try (ResultSet tables = connection.getMetaData().getTables(null, "public", "%", null)) {
                throw new AssertionError("pg_catalog is there: test what it says");
            } catch (SQLException error) {
                expect(true, error.getMessage().contains("pg_catalog"));
            }
            expect(10L, one(connection, "SELECT count(*) FROM digits"));
        }
    }

    @Check
    void dates() throws SQLException {
        try (Connection connection = connect();
                PreparedStatement statement = connection.prepareStatement("SELECT ?::datetime")) {
            statement.setObject(1, LocalDate.of(2024, 7, 1));
            try (ResultSet rows = statement.executeQuery()) {
                expect(true, rows.next());
                OffsetDateTime found = rows.getObject(1, OffsetDateTime.class);
                expect(OffsetDateTime.of(2024, 7, 1, 0, 0, 0, 0, ZoneOffset.UTC).toInstant(), found.toInstant());
            }
        }
    }

    @Check
    void manyParameters() throws SQLException {
        int count = 7500;
        String marks = IntStream.range(0, count).mapToObj(i -> "(?)").collect(Collectors.joining(", "));
        try (Connection connection = connect()) {
            execute(connection, "CREATE TABLE " + table + " (id INT PRIMARY KEY)");
            String insert = "INSERT INTO " + table + " VALUES " + marks;
            try (PreparedStatement statement = connection.prepareStatement(insert)) {
                for (int i = 0; i < count; i++) {
                    statement.setInt(i + 1, i);
                }
                expect(count, statement.executeUpdate());
            }
        }
    }

    // --- what the checks are written with ---

    private static void execute(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    private static Object one(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(sql)) {
            expect(true, rows.next());
            Object found = rows.getObject(1);
            return found instanceof Number || found == null ? found : found.toString();
        }
    }

    private static void expect(Object wanted, Object got) {
        if (!Objects.equals(wanted, got)) {
            throw new AssertionError("wanted " + wanted + ", got " + got);
        }
    }

    /** Equal as values: a decimal's scale and an instant's offset don't matter. */
    private static void expectSame(Object wanted, Object got) {
        if (wanted instanceof BigDecimal decimal) {
            expect(0, decimal.compareTo((BigDecimal) got));
        } else if (wanted instanceof OffsetDateTime at) {
            expect(at.toInstant(), ((OffsetDateTime) got).toInstant());
        } else {
            expect(wanted, got);
        }
    }

    private interface Failing {
        void run() throws Exception;
    }

    private static void expectState(String wanted, Failing work) {
        try {
            work.run();
        } catch (BatchUpdateException error) {
            expect(wanted, error.getNextException() == null ? error.getSQLState() : error.getNextException().getSQLState());
            return;
        } catch (SQLException error) {
            expect(wanted + " ", error.getSQLState() + " ");
            return;
        } catch (Exception error) {
            throw new AssertionError(error);
        }
        throw new AssertionError("no error, wanted " + wanted);
    }
}
