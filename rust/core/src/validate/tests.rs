use proptest::prelude::*;

use super::*;
use crate::error::BYTE_ORDER_MARK;
use crate::testing::json;

fn check(isa: Isa, data: &[u8], cuts: &[usize]) -> Result<()> {
    let mut validator = Validator::new(isa);
    let mut at = 0;
    let mut feed_all = || -> Result<()> {
        for &cut in cuts {
            let cut = cut.clamp(at, data.len());
            validator.feed(&data[at..cut])?;
            at = cut;
        }
        validator.feed(&data[at..])?;
        validator.clone().finish()
    };
    feed_all()
}

fn compare(data: &[u8], cuts: &[usize]) -> std::result::Result<(), TestCaseError> {
    let expected = naive::check(data);
    for isa in Isa::available() {
        let whole = check(isa, data, &[]);
        let position = whole.clone().map_err(|error| error.index as usize);
        prop_assert_eq!(position, expected, "{:?} {}", isa, String::from_utf8_lossy(data));
        prop_assert_eq!(check(isa, data, cuts), whole, "{:?} in pieces {:?}", isa, cuts);
    }
    Ok(())
}

/// Tokens and parts of tokens that mostly do not fit together.
fn tokens() -> impl Strategy<Value = Vec<u8>> {
    let token = prop::sample::select(
        &[
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"a\":",
            "\"",
            "\\",
            "\\u00e9",
            "\\ud83d",
            "\\x",
            " ",
            "\n",
            "\t",
            "\r\n",
            "1",
            "0",
            "-",
            "+",
            ".",
            "e",
            "E",
            "10.5e-3",
            "01",
            "-0",
            "1.",
            "true",
            "false",
            "null",
            "tru",
            "nulls",
            "\u{1}",
            "é",
            "漢",
            "😀",
            "[1,2]",
            "{\"k\":[]}",
            "x",
            "/",
        ][..],
    );
    prop::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn matches_the_reference(
        // Moves the tokens across the boundary between two blocks.
        padding in 0..70_usize,
        data in tokens(),
        cuts in prop::collection::vec(0..140_usize, 0..3),
    ) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        let mut padded = vec![b' '; padding];
        padded.extend(&data);
        compare(&padded, &cuts)?;
        let mut inside = b"[".to_vec();
        inside.resize(padding + 1, b' ');
        inside.extend(&data);
        inside.push(b']');
        compare(&inside, &cuts)?;
    }

    #[test]
    fn matches_on_arbitrary_bytes(data in prop::collection::vec(any::<u8>(), 0..150), cut in 0..150_usize) {
        compare(&data, &[cut])?;
    }
}

proptest! {
    #[test]
    fn matches_on_json_with_a_changed_byte(
        value in json(), pretty in any::<bool>(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut data = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
        let cut = cut.index(data.len() + 1);
        prop_assert_eq!(check(Isa::detect(), &data, &[cut]), Ok(()));
        compare(&data[..cut], &[cut / 2])?;
        let at = at.index(data.len());
        data[at] = byte;
        compare(&data, &[cut])?;
    }

    #[test]
    fn matches_on_payloads_of_many_blocks(
        values in prop::collection::vec(json(), 1..60), rows in any::<bool>(), pretty in any::<bool>(),
        at in any::<prop::sample::Index>(), change in prop::option::of(any::<u8>()), cut in any::<prop::sample::Index>(),
    ) {
        let mut data = match (rows, pretty) {
            (true, _) => values.iter().map(|value| format!("{value}\n")).collect::<String>().into_bytes(),
            (_, true) => serde_json::to_vec_pretty(&values).unwrap(),
            _ => serde_json::to_vec(&values).unwrap(),
        };
        if let Some(byte) = change {
            let at = at.index(data.len());
            data[at] = byte;
        }
        compare(&data, &[cut.index(data.len() + 1)])?;
    }

    #[test]
    fn accepts_ndjson(values in prop::collection::vec(json(), 1..8), blank in any::<bool>(), cut in any::<prop::sample::Index>()) {
        let separator = if blank { "\n\r\n" } else { "\n" };
        let data = values.iter().map(|value| value.to_string()).collect::<Vec<_>>().join(separator);
        compare(data.as_bytes(), &[cut.index(data.len() + 1)])?;
        prop_assert_eq!(check(Isa::detect(), data.as_bytes(), &[]), Ok(()));
    }
}

#[test]
fn nesting_is_bounded_but_generous() {
    for depth in [63, 64, 65, 128, 100_000] {
        let data = [b"[".repeat(depth), b"]".repeat(depth)].concat();
        assert_eq!(check(Isa::detect(), &data, &[]), Ok(()), "{depth}");
        let mismatched = [b"[".repeat(depth), b"}".to_vec()].concat();
        assert_eq!(check(Isa::detect(), &mismatched, &[]).unwrap_err().index, depth as u64);
        let mixed = [b"[{\"a\":".repeat(depth), b"1".to_vec(), b"}]".repeat(depth)].concat();
        assert_eq!(check(Isa::detect(), &mixed, &[]), Ok(()), "{depth}");
    }
    let depth = stack::MAX_DEPTH as usize + 1;
    assert_eq!(check(Isa::detect(), &b"[".repeat(depth), &[]).unwrap_err().index, depth as u64 - 1);
}

#[test]
fn tokens_may_stand_across_any_boundary() {
    let valid = [
        r#"{"a":true,"b":[false,null,{}],"c":-10.5e-3,"d":[[],[[[[1.25]]]],"\u00e9\\\"x"]},"#,
        "[0,-1,2.5,3e+7,true],",
        r#"{"key" : [ 1 , null ] , "k" : "v" }, "#,
    ];
    let broken = [
        "tru",
        "01",
        "1.5.5",
        "nulls",
        "-",
        "[}",
        "{\"a\" 1}",
        "{1:2}",
        "[1 2]",
        "[1,,2]",
        "\"\\x\"",
        "1e5.5",
        "{\"a\"}",
    ];
    for body in valid {
        for padding in 0..70 {
            // Several batches of the quick check.
            let mut data = format!("[{}{}0]", " ".repeat(padding), body.repeat(20_000 / body.len()));
            assert_eq!(naive::check(data.as_bytes()), Ok(()), "{body}");
            compare(data.as_bytes(), &[10_000 + padding]).unwrap();
            data.truncate(data.len() - 2);
            data.push_str(broken[padding % broken.len()]);
            data.push_str(&",1".repeat(3000));
            compare(data.as_bytes(), &[9_000 + padding]).unwrap();
        }
    }
}

#[test]
fn characters_may_be_cut_anywhere() {
    let cuts: Vec<_> = (0..20).flat_map(|at| [at, at]).collect();
    compare("[\"é漢😀\"]".as_bytes(), &cuts).unwrap();
    for broken in [&b"[\"\xf0\x9f\x98\"]"[..], b"[\"\xe6\xbc", b"[\"\xf0\x9f\x98\xc3\xa9\"]"] {
        compare(broken, &cuts).unwrap();
    }
}

#[test]
fn a_byte_order_mark_is_named_wherever_it_is_cut() {
    for data in ["\u{feff}", "\u{feff}[1]", &format!("\u{feff}[{}1]", "1,".repeat(99))] {
        let data = data.as_bytes();
        for isa in Isa::available() {
            for cut in 0..data.len() {
                assert_eq!(check(isa, data, &[cut, cut + 1]), Err(Error::json(0, BYTE_ORDER_MARK)), "{cut}");
            }
        }
    }
    for data in ["\u{fefe}[1]", " \u{feff}[1]", "[\u{feff}1]"] {
        let error = check(Isa::detect(), data.as_bytes(), &[]).unwrap_err();
        assert_ne!(error.kind, Error::json(0, BYTE_ORDER_MARK).kind, "{data}");
    }
}
