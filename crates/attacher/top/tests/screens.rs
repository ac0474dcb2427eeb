//! The screens as text, through ratatui's test backend.

use midair_live::{Call, Copies, Counter, Device, Head, Idle, Kernel, Line, Queue, Snapshot};
use midair_output::{CodeLine, Hottest, Stat};
use midair_top::{Action, By, Key, Look, View};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn stat(calls: u64, each: u64) -> Stat {
    let mut stat = Stat::default();
    (0..calls).for_each(|_| stat.count(each));
    stat
}

fn kernel(name: &str, share: f64, before: f64, calls: u64, each: u64) -> Kernel {
    Kernel {
        id: 1,
        name: name.to_owned(),
        symbol: format!("_Z{name}.kd"),
        share,
        before,
        rate: calls as f64 / 2.0,
        total: stat(calls, each),
        ..Kernel::default()
    }
}

fn snapshot(pid: u32) -> Snapshot {
    Snapshot {
        pid,
        name: "train".to_owned(),
        since: 1_000_000_000,
        now: 84_000_000_000,
        window: 2_000_000_000,
        records: 100_000,
        records_rate: 12_345.0,
        worker: Some(0.0123),
        devices: vec![Device {
            node: 2,
            gpu: 1,
            window: 2_000_000_000,
            busy: 0.625,
            idle: Idle {
                copies: 0.05,
                launching: 0.1,
                waiting: 0.0,
                nothing: 0.225,
            },
        }],
        kernels: vec![
            kernel("gemm_128x128", 0.75, 0.7, 400, 1_500_000),
            kernel(
                "elementwise<4, Add<float>, array<char*, 3>>",
                0.25,
                0.3,
                100,
                20_000,
            ),
        ],
        calls: vec![Call {
            name: "hipStreamSynchronize".to_owned(),
            waits: true,
            rate: 100.0,
            threads: 0.5,
            total: stat(10, 1_000),
        }],
        copies: vec![Copies {
            name: "host to device".to_owned(),
            rate: 1.25e9,
            bytes: 1 << 30,
            total: stat(10, 1_000),
        }],
        queues: vec![Queue {
            id: 3,
            node: 2,
            gpu: 1,
            ended: 500,
            head: Some(Head {
                dispatch: 501,
                name: "gemm_128x128".to_owned(),
                age: 3_200_000,
                under_way: 4,
            }),
        }],
        ..Snapshot::default()
    }
}

fn view(unicode: bool, snapshots: Vec<Snapshot>) -> View {
    let mut view = View::new(Look {
        colour: false,
        unicode,
    });
    view.show(snapshots, 0.004);
    view
}

/// The screen as a terminal of this size shows it.
fn drawn(view: &View, columns: u16, rows: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal
        .draw(|frame| {
            let area = frame.area();
            view.draw(area, frame.buffer_mut());
        })
        .unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |row: u16| -> String {
        let cells = (0..columns).map(|column| buffer[(column, row)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..rows).map(line).collect()
}

#[test]
fn one_process_at_100_columns() {
    let screen = drawn(&view(false, vec![snapshot(4711)]), 100, 14);
    let wanted = [
        "midair top  train (4711)  0:01:23  12.3k records/s  own 0.4% here, 1.2% there",
        "GPU 1   busy [###################           ]  62.5%",
        "       idle: copies 5.0%, launching 10.0%, nothing queued 22.5%",
        "copies  host to device 1.25 GB/s",
        "waits   hipStreamSynchronize 50.0% of a thread",
        "queue 3 GPU 1   3.20 ms in gemm_128x128, 3 behind it",
        "",
        "KERNEL                                                  SHARE  CHANGE     PER S      MEAN     TOTAL",
        ">gemm_128x128                                           75.0%    +5.0       200   1.50 ms    600 ms",
        " elementwise<4, Add<float>, array<char*, 3>>            25.0%    -5.0        50   20.0 us   2.00 ms",
        "",
        "",
        "",
        "q quit  s sort (share)  c code  / filter  space pause  Enter details  r record  ? help",
    ];
    assert_eq!(screen, wanted, "\n{}", screen.join("\n"));
}

#[test]
fn a_sampled_kernel_has_its_hottest_instruction() {
    let mut sampled = snapshot(4711);
    let first = sampled.kernels.first_mut().unwrap();
    first.hottest = Some(Hottest {
        kernel: 1,
        offset: 0x1c0,
        count: 30,
        all: 40,
    });
    let screen = drawn(&view(false, vec![sampled.clone()]), 100, 14);
    let line = screen
        .iter()
        .find(|line| line.contains("+0x1c0"))
        .unwrap_or_else(|| panic!("{screen:?}"));
    assert!(line.contains("gemm_128x128 +0x1c0 75%  "), "{line}");
    assert!(line.ends_with("600 ms") && line.len() <= 100, "{line}");
    // A name that is too long is cut, and the instruction is not.
    let first = sampled.kernels.first_mut().unwrap();
    first.name = "x".repeat(90);
    let screen = drawn(&view(false, vec![sampled]), 100, 14);
    let cut = screen.iter().find(|line| line.contains("xxx +0x1c0 75%"));
    assert!(cut.is_some_and(|line| line.contains("...")), "{screen:?}");
}

#[test]
fn sixty_columns_are_enough() {
    for unicode in [true, false] {
        let screen = drawn(&view(unicode, vec![snapshot(4711)]), 60, 12);
        let text = screen.join("\n");
        assert!(
            screen.iter().all(|line| line.chars().count() <= 60),
            "{text}"
        );
        assert_eq!(text.is_ascii(), !unicode, "{text}");
        assert!(
            text.contains("62.5%") && text.contains("nothing queued 22.5%"),
            "{text}"
        );
        assert!(
            screen
                .iter()
                .any(|line| line.contains("75.0%") && line.contains("1.50 ms")),
            "{text}"
        );
        assert_eq!(screen.last().unwrap(), "q s:share c:code / space Enter r ?");
    }
}

fn line([file, line, function]: [&str; 3], share: f64, calls: u64) -> Line {
    Line {
        code: CodeLine {
            name: format!("{file}:{line} {function}"),
            file: format!("/srv/{file}"),
            line: line.parse().unwrap_or(0),
            function: function.to_owned(),
        },
        share,
        before: share,
        rate: calls as f64 / 2.0,
        total: stat(calls, 20_000),
        ..Line::default()
    }
}

#[test]
fn lines_of_code_take_the_place_of_kernels() {
    let mut shown = snapshot(4711);
    shown.code = Some(vec![
        line(["job/train.py", "31", "Net.forward"], 0.75, 400),
        line(
            [
                "job/a_long_directory_of_models.py",
                "1207",
                "Transformer.block",
            ],
            0.25,
            100,
        ),
    ]);
    let mut view = view(false, vec![shown]);
    assert_eq!(view.key(Key::Char('c')), Action::Draw);
    let screen = drawn(&view, 80, 14);
    let wanted = [
        "CODE                                SHARE  CHANGE     PER S      MEAN     TOTAL",
        " job/train.py:31 Net.forward        75.0%       =       200   20.0 us   8.00 ms",
        " ..._directory_of_models.py:1207    25.0%       =        50   20.0 us   2.00 ms",
    ];
    assert_eq!(screen[7..10], wanted, "\n{}", screen.join("\n"));
    let last = "q quit  s sort (share)  c kernels  / filter  space  Enter  r record  ? help";
    assert_eq!(screen[13], last);
    // A small terminal has both lines, too.
    let screen = drawn(&view, 60, 12);
    let text = screen.join("\n");
    assert!(screen.iter().all(|it| it.chars().count() <= 60), "{text}");
    assert!(text.contains("job/train.py:31 Net.forward  "), "{text}");
    assert_eq!(
        screen.iter().filter(|it| it.contains("20.0 us")).count(),
        2,
        "{text}"
    );
    assert_eq!(screen[11], "q s:share c:kernels / space Enter r ?");
    view.key(Key::Char('j'));
    view.key(Key::Enter);
    let text = drawn(&view, 80, 20).join("\n");
    assert!(
        text.contains("CODE\njob/train.py:31 Net.forward\n/srv/job/train.py:31 Net.forward\n"),
        "{text}"
    );
    assert!(text.contains("LAUNCHES"), "{text}");
    view.key(Key::Escape);
    assert_eq!(view.key(Key::Char('c')), Action::Draw);
    assert!(drawn(&view, 80, 14).join("\n").contains("KERNEL "));
}

#[test]
fn lines_of_code_need_stacks() {
    let mut view = view(false, vec![snapshot(4711)]);
    assert_eq!(view.key(Key::Char('c')), Action::TakeStacks);
    // The session that takes none says why.
    let mut shown = snapshot(4711);
    let why = "no stacks are taken (--stacks): only the stacks of Python 3.11 to 3.14 are read";
    shown.no_stacks = Some(why.to_owned());
    view.show(vec![shown], 0.0);
    view.show_by(By::Code);
    assert!(drawn(&view, 100, 14).join("\n").contains(why));
    assert_eq!(view.key(Key::Char('c')), Action::Draw);
    assert_eq!(view.key(Key::Char('c')), Action::Draw);
}

/// Names are as in the table after an attach; the details have the whole name.
/// A low terminal hides the rows above the kernels.
#[test]
fn a_low_terminal_shows_kernels() {
    let mut one = snapshot(77);
    one.devices.push(one.devices[0].clone());
    let view = view(true, vec![one]);
    for rows in [6, 8, 12, 24] {
        let lines = drawn(&view, 60, rows);
        let shown = lines.iter().any(|line| line.contains("gemm_128x128  "));
        assert!(shown, "{rows}: {lines:#?}");
    }
    let busy = |rows| {
        let lines = drawn(&view, 60, rows);
        lines.iter().filter(|line| line.contains("busy")).count()
    };
    assert_eq!([busy(12), busy(24)], [2, 2]);
}

#[test]
fn names_of_kernels_are_short_and_stay_different() {
    let whole = "void at::native::elementwise<4, at::native::Add<float>>(int, float*)";
    let mut shown = snapshot(4711);
    shown.kernels = vec![
        kernel(whole, 0.5, 0.5, 100, 20_000),
        kernel("nn::relu(float*)", 0.3, 0.3, 100, 20_000),
        kernel("nn::relu(double*)", 0.2, 0.2, 100, 20_000),
    ];
    let head = shown.queues[0].head.as_mut().unwrap();
    head.name = whole.to_owned();
    shown.queues.push(shown.queues[0].clone());
    let mut view = view(false, vec![shown]);
    let screen = drawn(&view, 80, 16);
    let text = screen.join("\n");
    let has = |start: &str| screen.iter().any(|line| line.starts_with(start));
    assert!(has(">elementwise<4, Add<float>>"), "{text}");
    assert!(
        has(" nn::relu(float*)") && has(" nn::relu(double*)"),
        "{text}"
    );
    let line = "queue 3 GPU 1   3.20 ms in elementwise<4, Add<float>>, 3 behind it";
    assert_eq!(screen.iter().filter(|it| *it == line).count(), 2, "{text}");
    view.key(Key::Char('j'));
    view.key(Key::Enter);
    assert!(drawn(&view, 80, 16).join("\n").contains(whole));
}

#[test]
fn nothing_of_a_target_is_obeyed() {
    let mut hostile = snapshot(1);
    hostile.name = "\x1b[31mred\n".to_owned();
    hostile.kernels[0].name = "k\x1b]0;title\x07\u{202e}".to_owned();
    let mut gone = snapshot(3);
    gone.ended = Some("\x1b[2J".to_owned());
    let view = view(true, vec![hostile, snapshot(2), gone]);
    for text in [view.text(80), drawn(&view, 80, 24).join("\n")] {
        assert!(!text.contains(['\x1b', '\x07', '\u{202e}']), "{text:?}");
        assert!(text.contains("title"), "{text}");
    }
}

#[test]
fn several_processes_have_a_line_each_and_the_late_one_is_marked() {
    let mut late = snapshot(3);
    late.kernels[0].rate = 20.0;
    late.kernels[1].rate = 5.0;
    let mut gone = snapshot(4);
    gone.ended = Some("it exited with code 0".to_owned());
    let all = vec![snapshot(1), snapshot(2), late, gone];
    let screen = drawn(&view(false, all.clone()), 100, 20);
    let text = screen.join("\n");
    assert!(screen[0].starts_with("midair top  3 processes"), "{text}");
    let of = |start: &str| screen.iter().find(|line| line.starts_with(start)).unwrap();
    assert!(of("1 train").ends_with("nothing queued"), "{text}");
    assert!(
        of("3 train").ends_with("STRAGGLER: nothing queued"),
        "{text}"
    );
    assert!(of("4 train").ends_with("it exited with code 0"), "{text}");
    assert_eq!(
        screen
            .iter()
            .filter(|line| line.contains("STRAGGLER"))
            .count(),
        1
    );
    // Kernels of one name are one line.
    assert_eq!(
        screen
            .iter()
            .filter(|line| line.contains("gemm_128x128   "))
            .count(),
        1,
        "{text}"
    );
    let narrow = drawn(&view(false, all), 60, 20).join("\n");
    assert!(narrow.contains("STRAGGLER"), "{narrow}");
}

#[test]
fn keys_sort_filter_pause_and_open() {
    let mut view = view(false, vec![snapshot(4711)]);
    let has = |view: &View, text: &str| drawn(view, 80, 20).join("\n").contains(text);
    assert_eq!(view.key(Key::Char('s')), Action::Draw);
    assert!(has(&view, "sort (change)"));
    view.key(Key::Char('S'));
    assert!(has(&view, "sort (share)"));
    // A filter is typed, and letters are no keys meanwhile.
    view.key(Key::Char('/'));
    for letter in "ELEMq".chars() {
        assert_eq!(view.key(Key::Char(letter)), Action::Draw);
    }
    assert!(has(&view, "/ELEMq_"));
    view.key(Key::Backspace);
    view.key(Key::Enter);
    assert!(has(&view, " elementwise<") && !has(&view, ">gemm"));
    view.key(Key::Escape);
    assert!(has(&view, ">gemm"));
    // Paused, it shows what it showed.
    view.key(Key::Char(' '));
    let mut next = snapshot(4711);
    next.devices[0].busy = 0.111;
    view.show(vec![next.clone()], 0.0);
    assert!(has(&view, "PAUSED") && has(&view, "62.5%"));
    view.key(Key::Char('p'));
    view.show(vec![next], 0.0);
    assert!(!has(&view, "PAUSED") && has(&view, "11.1%"));
    // Details.
    view.key(Key::Char('j'));
    view.key(Key::Enter);
    assert!(has(&view, "_Zgemm_128x128.kd") && has(&view, "400 since the attach, 600 ms together"));
    view.key(Key::Escape);
    view.key(Key::Char('?'));
    assert!(has(&view, "record the next seconds to files"));
    view.key(Key::Char('?'));
    view.tell("written: /tmp/x");
    assert!(has(&view, "written: /tmp/x"));
    assert_eq!(view.key(Key::Char('r')), Action::Keep);
    assert!(
        !has(&view, "written: /tmp/x"),
        "a message stays until the next key"
    );
    assert_eq!(view.key(Key::Char('q')), Action::Quit);
    assert_eq!(view.key(Key::Interrupt), Action::Quit);
}

#[test]
fn every_size_of_a_terminal_has_a_screen() {
    let mut view = view(true, vec![snapshot(1), snapshot(2)]);
    for columns in [1, 10, 40, 59, 200] {
        for rows in [1, 2, 5, 24, 60] {
            drawn(&view, columns, rows);
            view.key(Key::Down(1));
            view.key(Key::Enter);
        }
    }
}

#[test]
fn colours_only_where_they_are_wanted() {
    for colour in [true, false] {
        let mut view = View::new(Look {
            colour,
            unicode: true,
        });
        view.show(vec![snapshot(1)], 0.0);
        let mut terminal = Terminal::new(TestBackend::new(80, 12)).unwrap();
        terminal
            .draw(|frame| {
                let area = frame.area();
                view.draw(area, frame.buffer_mut());
            })
            .unwrap();
        let cells = &terminal.backend().buffer().content;
        let coloured = cells
            .iter()
            .any(|cell| cell.fg != ratatui::style::Color::Reset);
        assert_eq!(coloured, colour);
    }
}

#[test]
fn counters_of_a_gpu_share_lines() {
    let mut shown = snapshot(4711);
    let counter = |gpu, name: &str, unit: &str, mean| Counter {
        gpu,
        name: name.to_owned(),
        unit: unit.to_owned(),
        mean,
        readings: 200,
    };
    shown.counters = vec![
        counter(1, "GRBM_COUNT", "/s", 2.1e9),
        counter(1, "SQ_WAVES", "/s", 123_456.0),
        counter(1, "OccupancyPercent", "", 62.5),
        counter(2, "tensor", "%", 48.25),
    ];
    let mut view = View::new(Look {
        colour: false,
        unicode: false,
    });
    view.show(vec![shown], 0.0);
    let lines: Vec<String> = view.text(60).lines().map(str::to_owned).collect();
    let at = lines.iter().position(|line| line.starts_with("counter"));
    let at = at.unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(
        lines[at..at + 3],
        [
            "counter GPU 1  GRBM_COUNT 2.10G/s  SQ_WAVES 123.5k/s",
            "counter GPU 1  OccupancyPercent 62.50",
            "counter GPU 2  tensor 48.25 %"
        ]
    );
}
