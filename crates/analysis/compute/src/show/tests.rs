use super::*;
use midair_failure::Kind;
use rusqlite::Connection;
use std::fs;
use std::path::PathBuf;

const HEAD: &str = "\"Kind\",\"Kernel_Name\",\"Start_Timestamp\",\"End_Timestamp\"\n";

fn options(table: Option<&str>, limit: usize) -> Options {
    Options {
        table: table.map(str::to_owned),
        limit,
    }
}

/// Names, calls and nanoseconds of the first table.
fn sums(shown: &Shown) -> Vec<(String, u64, u64)> {
    let section = shown.sections.first();
    let rows = section.into_iter().flat_map(|section| section.rows());
    rows.map(|(name, stat)| (name.to_owned(), stat.calls, stat.total))
        .collect()
}

fn sum(name: &str, calls: u64, total: u64) -> (String, u64, u64) {
    (name.to_owned(), calls, total)
}

/// A directory, and what was put there.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, contents).unwrap();
        path
    }

    /// A database of one process, as AMD's tool and midair write it: the tables end in a process's id.
    fn database(&self, name: &str, rows: &str) -> PathBuf {
        let path = self.0.path().join(name);
        let database = Connection::open(&path).unwrap();
        let schema = "CREATE TABLE rocpd_kernel_dispatch_x (id INTEGER PRIMARY KEY, guid TEXT, kernel_id INTEGER, start INTEGER, \"end\" INTEGER);
            CREATE TABLE rocpd_info_kernel_symbol_x (id INTEGER PRIMARY KEY, guid TEXT, kernel_name TEXT, display_name TEXT);
            CREATE TABLE rocpd_region_x (id INTEGER PRIMARY KEY, guid TEXT, name_id INTEGER, start INTEGER, \"end\" INTEGER);
            CREATE TABLE rocpd_string_x (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
            INSERT INTO rocpd_info_kernel_symbol_x VALUES (1, 'x', '_Z1', 'vadd(float*, int)'), (2, 'x', 'raw', NULL);
            INSERT INTO rocpd_string_x VALUES (1, 'x', 'hipMalloc');
            CREATE VIEW kernels AS SELECT id, start FROM rocpd_kernel_dispatch_x;
            CREATE VIEW endless AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x FROM n WHERE x = 2;";
        database.execute_batch(schema).unwrap();
        database.execute_batch(rows).unwrap();
        path
    }
}

const DISPATCHES: &str = "INSERT INTO rocpd_kernel_dispatch_x VALUES (1, 'x', 1, 100, 300), (2, 'x', 1, 400, 500), (3, 'x', 2, 5, 6), \
                          (4, 'x', 2, 0, 0), (5, 'x', 9, 10, 20)";

#[test]
fn a_csv_file_has_a_cell_for_each_value() {
    let place = Place::new();
    let lines = "\"K\",\"vadd(float const*, int)\",1,2\n\"K\",\"a \"\"b\"\"\",3,4\n\n\"K\",c,5,6\n";
    let path = place.file("1_kernel_trace.csv", format!("{HEAD}{lines}"));
    let shown = show(&path, &options(None, 2)).unwrap();
    let rows = shown.rows.unwrap();
    assert_eq!(rows.headings[1], "Kernel_Name");
    assert_eq!(rows.rows[0], ["K", "vadd(float const*, int)", "1", "2"]);
    assert_eq!(rows.rows[1], ["K", "a \"b\"", "3", "4"]);
    assert_eq!(rows.left_out, 1);
}

#[test]
fn a_database_has_its_kernels_or_else_its_calls_and_any_table() {
    let place = Place::new();
    let path = place.database("1_results.db", DISPATCHES);
    let shown = show(&path, &options(None, 50)).unwrap();
    let wanted = [
        sum("vadd", 2, 300),
        sum("(a name that is not described)", 1, 10),
        sum("raw", 1, 1),
    ];
    assert_eq!(sums(&shown), wanted);
    let notes = shown.notes.join("\n");
    assert!(
        notes.contains("1 of 5 were recorded without times"),
        "{notes}"
    );
    assert!(notes.contains("endless, kernels"), "{notes}");

    let shown = show(&path, &options(Some("KERNELS"), 2)).unwrap();
    let rows = shown.rows.unwrap();
    assert_eq!(rows.headings, ["id", "start"]);
    assert_eq!(rows.rows, [["1", "100"], ["2", "400"]]);
    assert_eq!(rows.left_out, 3);

    let refused = show(&path, &options(Some("top"), 2)).unwrap_err();
    assert_eq!(refused.kind, Kind::Usage);
    assert!(
        refused.hint.contains("endless, kernels, rocpd_info"),
        "{}",
        refused.hint
    );

    let calls = "INSERT INTO rocpd_region_x VALUES (1, 'x', 1, 10, 30), (2, 'x', 1, 30, 40)";
    let path = place.database("2_results.db", calls);
    let shown = show(&path, &options(None, 50)).unwrap();
    assert_eq!(shown.sections[0].title(), "CALL");
    assert_eq!(sums(&shown), [sum("hipMalloc", 2, 30)]);

    // Any other database names its tables.
    let path = place.0.path().join("other.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (a)").unwrap();
    let shown = show(&path, &options(None, 50)).unwrap();
    assert_eq!(shown.rows.unwrap().rows, [["t"]]);
}

#[test]
fn a_directory_has_the_kernels_of_all_its_files() {
    let place = Place::new();
    place.database("1_results.db", DISPATCHES);
    // The same recording in another format is not counted twice.
    place.file("1_kernel_trace.csv", format!("{HEAD}K,vadd,1,2\n"));
    place.file("node/2_kernel_trace.csv", format!("{HEAD}K,vadd,1,5\n"));
    let shown = show(place.0.path(), &options(None, 50)).unwrap();
    assert_eq!(sums(&shown)[0], sum("vadd", 2, 300));
    let only = place.0.path().join("node");
    let shown = show(&only, &options(None, 50)).unwrap();
    assert_eq!(sums(&shown), [sum("vadd", 1, 4)]);
    let shown = show(&only, &options(Some("kernel_trace"), 50)).unwrap();
    assert_eq!(shown.rows.unwrap().rows, [["K", "vadd", "1", "5"]]);
    let refused = show(place.0.path(), &options(Some("kernel_trace"), 50)).unwrap_err();
    assert!(refused.what.starts_with("2 files in"), "{}", refused.what);
    let refused = show(&only, &options(Some("nothing"), 50)).unwrap_err();
    assert_eq!(refused.hint, "--table NAME: kernel_trace");
    // Files without kernels are named.
    place.file("calls/3_hip_api_trace.csv", "\"A\",\"B\"\n1,2\n");
    let shown = show(&place.0.path().join("calls"), &options(None, 50)).unwrap();
    assert!(shown.rows.unwrap().rows[0][0].ends_with("3_hip_api_trace.csv"));
}

/// Each of them is one error with a hint and the exit code of unusable input.
#[test]
fn what_is_no_result_is_refused() {
    let place = Place::new();
    fs::create_dir(place.0.path().join("empty")).unwrap();
    let mut cut = fs::read(place.database("whole.db", DISPATCHES)).unwrap();
    cut.truncate(5000);
    let cases: [(PathBuf, &str); 14] = [
        (place.0.path().join("missing"), "No such file"),
        (place.0.path().join("empty"), "there are no results in it"),
        (place.file("nothing.csv", ""), "it is empty"),
        (
            place.file("garbage", [0, 159, 146, 150]),
            "it is no database",
        ),
        (place.file("words", "some words\n"), "it is no database"),
        (place.file("a.pftrace", [10, 0]), "have no tables"),
        (place.file("cut.db", cut), "damaged"),
        (place.file("head.db", "SQLite format 3\0"), "damaged"),
        (place.file("a.json", "{\"a\": 1}"), "rocprofiler-sdk-tool"),
        (place.file("b.json", "{\"a\": "), "EOF"),
        (place.file("a.parquet", "PAR1PAR1"), "no metadata"),
        (
            place.file("b.parquet", b"PAR1\xff\xff\0\0PAR1"),
            "no metadata",
        ),
        (
            place.file("short.csv", "a,b\n1\n"),
            "line 2 has another number",
        ),
        (
            place.file("more.csv", "a,b\n1,2,3\n"),
            "line 2 has another number",
        ),
    ];
    for (path, why) in cases {
        let refused = show(&path, &options(None, 50)).unwrap_err();
        assert_eq!(refused.kind, Kind::Input, "{}", refused.what);
        assert!(
            refused.what.contains(why),
            "{}: {}",
            path.display(),
            refused.what
        );
        assert!(!refused.hint.is_empty(), "{}", refused.what);
    }
    // A pipe is not waited for.
    let pipe = place.0.path().join("pipe.csv");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(show(&pipe, &options(None, 50)).is_err());
}

/// A view without an end, and tables that are none.
#[test]
fn a_database_does_not_get_its_way() {
    let place = Place::new();
    let path = place.0.path().join("a.db");
    let database = Connection::open(&path).unwrap();
    let made = "CREATE VIEW rocpd_region_x AS SELECT 1; CREATE TABLE rocpd_kernel_dispatch_x (id, guid, kernel_id, start, \"end\" AS (id + 1))";
    database.execute_batch(made).unwrap();
    let refused = show(&path, &options(None, 50)).unwrap_err();
    assert!(
        refused.what.contains("is not a table with stored columns"),
        "{}",
        refused.what
    );
    let path = place.0.path().join("b.db");
    let database = Connection::open(&path).unwrap();
    let made = "CREATE VIEW large AS SELECT zeroblob(2000000000) AS a";
    database.execute_batch(made).unwrap();
    let refused = show(&path, &options(Some("large"), 50)).unwrap_err();
    assert_eq!(refused.kind, Kind::Input);
}

#[test]
fn json_has_its_kernels() {
    let golden = "../../formats/output/tests/golden/r_results.json";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(golden);
    let csv = path.with_file_name("r_kernel_trace.csv");
    let of_json = sums(&show(&path, &options(None, 50)).unwrap());
    let mut of_csv = Times::default();
    delimited::kernels(&csv, &mut of_csv).unwrap();
    let mut shown = Shown::default();
    of_csv.put("KERNEL", &mut shown);
    assert_eq!(of_json, sums(&shown));
    assert!(of_json.len() > 2, "{of_json:?}");
}
