use super::*;

#[test]
fn a_record_survives_encode_and_decode() {
    let symbol = KernelSymbol {
        header: Header {
            kind: kind::KERNEL_SYMBOL,
            ..Default::default()
        },
        kernel_id: 7,
        name_len: 5,
        ..Default::default()
    };
    let bytes = encode(&symbol, b"hello");
    let (record, size) = decode(&bytes).unwrap();
    assert_eq!(size, bytes.len());
    assert!(matches!(record, Record::KernelSymbol(k, b"hello") if k.kernel_id == 7));
}

#[test]
fn a_window_has_as_many_words_as_it_says() {
    let mut window = CounterWindow {
        header: Header {
            kind: kind::COUNTER_COLLECTION,
            ..Default::default()
        },
        window: 3,
        words: 2,
        ..Default::default()
    };
    let words = [7_u64, 8].map(u64::to_le_bytes).concat();
    let bytes = encode(&window, &words);
    let (record, size) = decode(&bytes).unwrap();
    assert_eq!(
        (record, size),
        (Record::CounterWindow(with_size(window, size), &words), size)
    );
    for words in [3, u32::MAX] {
        window.words = words;
        assert!(decode(&encode(&window, &[0; 16])).is_err(), "{words}");
    }
}

/// Every kind is read back with its header, which says what it is.
#[test]
fn a_record_of_each_kind_has_its_header() {
    let mut known = Vec::new();
    for kind in 0..=u8::MAX {
        let header = Header {
            size: MAX_RECORD as u16,
            kind,
            flags: 3,
            operation: 5,
        };
        let bytes = [header.bytes(), &[0; MAX_RECORD - size_of::<Header>()]].concat();
        let (record, size) = match decode(&bytes) {
            Ok(read) => read,
            Err(why) => {
                assert_eq!(why, Malformed::Kind(kind));
                continue;
            }
        };
        assert_eq!(size, MAX_RECORD);
        let wanted = (kind != kind::NOTE).then_some(&header);
        assert_eq!(record.header(), wanted, "{record:?}");
        known.push(kind);
    }
    for domain in midair_domain::built() {
        assert!(known.contains(&domain.kind), "{}", domain.name);
    }
    let descriptions = known
        .iter()
        .filter(|kind| **kind >= kind::FIRST_DESCRIPTION);
    assert_eq!(descriptions.count(), 16);
}

fn with_size(mut window: CounterWindow, size: usize) -> CounterWindow {
    window.header.size = size as u16;
    window
}

#[test]
fn a_note_has_the_first_2000_bytes_of_its_text() {
    for (text, kept) in [("", ""), ("no room", "no room")] {
        assert_eq!(
            decode(&note(text)).map(|it| it.0),
            Ok(Record::Note(kept.as_bytes()))
        );
    }
    let long = "x".repeat(2000);
    for text in [long.clone(), format!("{long}y")] {
        let bytes = note(&text);
        let kept = Record::Note(long.as_bytes());
        assert_eq!(decode(&bytes), Ok((kept, bytes.len())));
    }
}

#[test]
fn each_reason_for_no_times_has_its_number_and_its_text() {
    let texts: Vec<&str> = Untimed::ALL.iter().map(|reason| reason.text()).collect();
    for (number, word) in [
        "timed",
        "packet processor",
        "no free signal",
        "reused",
        "running at detach",
        "queue was destroyed",
        "implausible",
        "without profiling",
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(Untimed::ALL[number] as usize, number);
        assert!(texts[number].contains(word), "{number}: {}", texts[number]);
    }
}

#[test]
fn what_cuda_adds_is_optional() {
    let kernel = Kernel {
        header: Header {
            kind: kind::KERNEL_DISPATCH,
            ..Default::default()
        },
        ..Default::default()
    };
    let launch = CudaLaunch {
        graph_node: 5,
        registers: 32,
        ..Default::default()
    };
    assert_eq!(
        decode(&encode(&kernel, &[])).map(|it| it.0),
        Ok(Record::Kernel(
            Kernel {
                header: Header {
                    size: size_of::<Kernel>() as u16,
                    ..kernel.header
                },
                ..kernel
            },
            None
        ))
    );
    let bytes = encode(&kernel, launch.bytes());
    assert!(matches!(decode(&bytes), Ok((Record::Kernel(_, Some(told)), _)) if told == launch));
}

#[test]
fn lengths_that_lie_are_refused() {
    let api = Api {
        header: Header {
            kind: kind::HSA_CORE_API,
            ..Default::default()
        },
        nargs: u32::MAX,
        ..Default::default()
    };
    assert!(matches!(
        decode(&encode(&api, &[0; 16])),
        Err(Malformed::Size { .. })
    ));
    for size in [0, 4, 12, 4104, u16::MAX] {
        let [low, high] = size.to_ne_bytes();
        let bytes = [&[low, high, kind::NOTE][..], &[0; 1 << 16]].concat();
        let kind = kind::NOTE;
        assert_eq!(decode(&bytes), Err(Malformed::Size { kind, size }));
    }
    assert_eq!(decode(&[0; 4]), Err(Malformed::Truncated));
    assert!(matches!(decode(&[0; 8]), Err(Malformed::Size { .. })));
    assert_eq!(
        decode(&[8, 0, 200, 0, 0, 0, 0, 0]),
        Err(Malformed::Kind(200))
    );
    assert_eq!(
        decode(&[16, 0, kind::KERNEL_DISPATCH, 0, 0, 0, 0, 0]),
        Err(Malformed::Truncated)
    );
}
