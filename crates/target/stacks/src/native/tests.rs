use super::*;

fn table() -> (Modules, Table) {
    let mut modules = Modules::default();
    modules.read().unwrap();
    let table = Table::of(&modules, None).unwrap();
    (modules, table)
}

/// The tests' own program has the code of `Table`, so its frames count as midair's own. Walks them all
/// the same, and returns the functions' first addresses.
#[inline(never)]
fn functions(modules: &Modules, table: &Table) -> (Vec<u64>, bool) {
    let mut at = here();
    let stack = Bounds::of_thread(at.sp, &modules.main_stack).unwrap();
    let mut all = Vec::new();
    let mut step = 0;
    loop {
        let address = at.pc - step;
        step = 1;
        let Some((rule, _)) = table.rule(address) else {
            return (all, false);
        };
        all.push(modules.function(address).map_or(0, |range| range.start));
        match rule.step(at, &stack) {
            Some(caller) => at = caller,
            None => return (all, rule == Rule::Root),
        }
    }
}

#[inline(never)]
fn inner(modules: &Modules, table: &Table, depth: u64) -> (Vec<u64>, bool) {
    let mut found = match depth {
        0 => functions(modules, table),
        _ => inner(modules, table, depth - 1),
    };
    found.0.push(depth);
    found
}

#[inline(never)]
fn outer(modules: &Modules, table: &Table) -> (Vec<u64>, bool) {
    let mut found = inner(modules, table, 3);
    found.0.push(u64::MAX);
    found
}

#[test]
fn each_function_on_the_way_to_the_threads_root_is_found() {
    let (modules, table) = table();
    for _ in 0..2 {
        let (found, is_root) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| outer(&modules, &table));
            thread.join().unwrap()
        });
        assert!(is_root, "{found:x?}");
        let start = |function: usize| function as u64;
        let wanted = [
            start(functions as *const () as usize),
            start(inner as *const () as usize),
            start(inner as *const () as usize),
            start(inner as *const () as usize),
            start(inner as *const () as usize),
            start(outer as *const () as usize),
        ];
        assert_eq!(found[..6], wanted, "{found:x?}");
    }
}

/// Walks a stack that consists of these words, from the innermost frame with this address.
fn walk(table: &Table, pc: u64, fp: u64, words: &[u64]) -> (usize, bool) {
    let mut at = Registers {
        pc,
        sp: words.as_ptr().expose_provenance() as u64,
        fp: Some(fp),
    };
    let mut count = 0;
    let stack = Bounds::of_words(words);
    let whole = table.walk_from(&mut at, &stack, &mut |_, _, _| {
        count += 1;
        true
    });
    (count, whole)
}

#[test]
fn a_stack_of_garbage_only_ends_the_walk() {
    let (modules, table) = table();
    let libc = modules
        .list
        .iter()
        .find(|it| it.file_name() == b"libc.so.6");
    let code = libc.unwrap().code[0].clone();
    let mut seed = 1_u64;
    let mut random = || {
        seed = mix(seed, 7);
        seed
    };
    let mut words = [0_u64; 256];
    let here = words.as_ptr().addr() as u64;
    for round in 0..20_000 {
        let inside = |random: u64| code.start + random % (code.end - code.start);
        for word in &mut words {
            let value = random();
            *word = match value % 4 {
                0 => inside(value >> 2),
                1 => here + (value >> 2) % 2048,
                2 => value >> 50,
                _ => value,
            };
        }
        let fp = match round % 3 {
            0 => here + random() % 2048,
            1 => random(),
            _ => 0,
        };
        let (count, _) = walk(&table, inside(random()), fp, &words);
        assert!(count <= words.len());
    }
}

#[test]
fn code_without_an_entry_is_left_by_its_frame_pointer() {
    let own = Part {
        range: 0x1000..0x2000,
        module: 1,
        bias: 0,
        owner: Owner::Application,
        tables: Arc::default(),
        loaded: None,
        is_permanent: true,
    };
    let table = Table {
        parts: vec![own],
        main_stack: 0..0,
        evaluates: 0..0,
        cache: Cache::new().unwrap(),
    };
    let mut words = [0_u64; 16];
    let at = |number: u64| words.as_ptr().addr() as u64 + 8 * number;
    let (first, second, below) = (at(4), at(10), at(0).wrapping_sub(64));
    words[4..6].copy_from_slice(&[second, 0x1800]);
    words[10..12].copy_from_slice(&[0, 0x9000]);
    // The last frame returns to code that no module has.
    assert_eq!(walk(&table, 0x1500, first, &words), (3, false));
    // A frame pointer that points elsewhere, or downwards, ends the walk.
    for wrong in [0, 8, u64::MAX, u64::MAX - 15, below, first + 4] {
        assert_eq!(walk(&table, 0x1500, wrong, &words), (1, false), "{wrong:x}");
        words[4] = wrong;
        assert_eq!(walk(&table, 0x1500, first, &words), (2, false), "{wrong:x}");
        words[4] = second;
    }
    words[10] = first;
    words[11] = 0x1500;
    assert_eq!(walk(&table, 0x1500, first, &words), (3, false), "a circle");
}
