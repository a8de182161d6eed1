use proptest::prelude::*;

use super::*;
use crate::index::Kind;
use crate::testing::{json, maps};

/// Reference: one thread.
fn index_alone(data: &[u8], path: Option<&str>, isa: Isa) -> Result<ItemIndex> {
    let mut indexer = ItemIndexer::with_isa(path, true, isa)?;
    indexer.feed(data)?;
    indexer.finish()
}

fn divide(data: &[u8], path: Option<&str>, isa: Isa, division: &Division) -> (Result<ItemIndex>, Reuse) {
    let indexer = ItemIndexer::with_isa(path, true, isa).unwrap();
    index(indexer, data, division.clone())
}

/// Asserts that a division changes nothing, and returns how much of the second thread's work was used.
fn compare(data: &[u8], path: Option<&str>, isa: Isa, division: &Division) -> Reuse {
    let (result, reuse) = divide(data, path, isa, division);
    assert_eq!(result, index_alone(data, path, isa), "{isa:?} {path:?} {division:?}");
    reuse
}

fn item(i: usize) -> String {
    let text = "a,\\\"]}[{\\\\ ü".repeat(i % 3);
    format!("{{\"id\":{i},\"text\":\"{text}\",\"tags\":[1.5e3,true,{{\"k\":[null]}}],\"x\":-0.25}}")
}

fn items(len: usize, separator: &str) -> String {
    (0..len).map(item).collect::<Vec<_>>().join(separator)
}

fn map(len: usize) -> String {
    let entries: Vec<_> = (0..len).map(|i| format!("\"k,{i}\" : {}", item(i))).collect();
    format!("{{\"total\":1,\"records\":{{{}}},\"next\":null}}", entries.join(", "))
}

/// Documents with `len` items, and the path of the items.
fn documents(len: usize) -> Vec<(String, &'static str)> {
    let rows = items(len, ",\n  ");
    let row = |i: usize| format!("[{i},{},[[{i}]],{{}}]", item(i));
    vec![
        (format!("[{}]", items(len, ",")), ""),
        (format!("[\n  {rows}\n]\n"), ""),
        (
            format!("{{\"meta\":{{\"n\":[1,2]}},\"data\":{{\"rows\":[{rows}]}},\"next\":{{\"a\":[]}}}}"),
            "/data/rows",
        ),
        (format!("{}\n", items(len, "\n")), ""),
        (items(len, "\r\n\n"), ""),
        (format!("[{}]", (0..len).map(row).collect::<Vec<_>>().join(" , ")), ""),
        (
            format!(
                "{{\"n\":[{}]}}",
                (100..100 + 20 * len).map(|i| i.to_string()).collect::<Vec<_>>().join(",")
            ),
            "/n",
        ),
        (format!("[{}]", vec!["\"some, text \\\\\""; 6 * len].join(",")), ""),
    ]
}

#[test]
fn every_cut_gives_the_same_index() {
    for (data, path) in documents(16) {
        let data = data.as_bytes();
        let mut tried = 0;
        let mut reused = 0;
        for cut in 1..data.len() {
            let division = Division { lead: cut.min(200), max_lead: cut, window: cut.min(200)..cut, cut };
            for isa in Isa::available() {
                let path = (cut % 2 == 0).then_some(path);
                let reuse = compare(data, path, isa, &division);
                // There is an item before the cut, and another after.
                if cut > 500 && cut < data.len() - 200 {
                    tried += 1;
                    reused += usize::from(reuse == Reuse::Everything);
                }
            }
        }
        let start = String::from_utf8_lossy(&data[..60]);
        assert!(tried > 500 && reused * 10 > tried * 9, "{reused} of {tried} for {start}");
    }
}

#[test]
fn every_error_is_found_at_every_cut() {
    for (data, _) in documents(6) {
        for (i, byte) in [b'"', b'}', b']', b',', b'x', b'\n', b'\\', 0xff].into_iter().cycle().enumerate() {
            let at = i * 17;
            if at >= data.len() {
                break;
            }
            let mut broken = data.clone().into_bytes();
            broken[at] = byte;
            for cut in (1 + i % 7..broken.len()).step_by(7) {
                let lead = cut.min(120);
                let division = Division { lead, max_lead: lead, window: lead..cut, cut };
                compare(&broken, None, Isa::detect(), &division);
            }
            broken.truncate(at);
            let division = Division { lead: at / 4, max_lead: at / 4, window: at / 4..at / 2, cut: at / 2 };
            compare(&broken, None, Isa::detect(), &division);
        }
    }
}

proptest! {
    #[test]
    fn no_cut_changes_the_result(
        values in prop::collection::vec(prop_oneof![json(), maps()], 1..12), shape in 0..4_usize,
        change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        lead in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>(), window in any::<prop::sample::Index>(),
        wanted in prop::option::of(prop::sample::select(&["", "/0", "/1/0", "/a", "/0/a"][..])),
    ) {
        let mut data = match shape {
            0 => serde_json::to_vec(&values).unwrap(),
            1 => serde_json::to_vec_pretty(&values).unwrap(),
            2 => serde_json::to_vec(&serde_json::json!({"b": 1, "a": values})).unwrap(),
            _ => values.iter().map(|value| format!("{value}\n")).collect::<String>().into_bytes(),
        };
        if let Some((at, byte)) = change {
            let at = at.index(data.len());
            data[at] = byte;
        }
        let cut = cut.index(data.len() + 1);
        let lead = lead.index(cut + 1);
        let window = lead + window.index(cut - lead + 1)..cut;
        for isa in Isa::available() {
            compare(&data, wanted, isa, &Division { lead, max_lead: cut, window: window.clone(), cut });
        }
    }

    #[test]
    fn an_item_starts_after_a_comma_of_the_outermost_container(value in json(), pretty in any::<bool>(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        let data = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
        let to = to.index(data.len() + 1);
        let from = from.index(to + 1);
        let (mut inside, mut escaped, mut was_inside) = (false, false, false);
        let (mut depth, mut outermost, mut comma) = (0, 0, None);
        for (at, &byte) in data[..to].iter().enumerate() {
            if at == from {
                (depth, outermost, comma, was_inside) = (0, 0, None, inside);
            }
            let is_escaped = std::mem::take(&mut escaped);
            match byte {
                b'"' if !is_escaped => inside = !inside,
                b'\\' if inside => escaped = !is_escaped,
                _ if inside => {}
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                b',' if depth == outermost && comma.is_none() => comma = Some(at + 1),
                _ => {}
            }
            if depth < outermost {
                (outermost, comma) = (depth, None);
            }
        }
        if let Some(comma) = comma.filter(|_| from == 0 || data[from - 1] != b'\\') {
            let starts = item_starts(&data, from..to, false);
            prop_assert!(starts.contains(&comma), "{:?} {:?} {}", starts, comma, was_inside);
        }
    }
}

#[test]
fn brackets_are_not_followed_for_long() {
    assert_eq!(outermost_comma(Isa::detect(), &b"]".repeat(1 << 20)), None);
    let brackets = [&b"]".repeat(MAX_CLOSED - 1)[..], b",1"].concat();
    assert_eq!(outermost_comma(Isa::detect(), &brackets), Some(MAX_CLOSED - 1));
}

/// A division with the windows and pieces of a large payload.
fn division(len: usize) -> Division {
    // The entries of a map are only counted after 256 KiB.
    Division { max_lead: len / 3, ..Division::in_two(len) }
}

#[test]
fn the_second_half_is_read_by_the_second_thread() {
    let mut documents = documents(11_000);
    documents.push((map(11_000), "/records"));
    for (data, path) in documents {
        let data = data.into_bytes();
        let division = division(data.len());
        for isa in Isa::available() {
            for path in [None, Some(path)] {
                let reuse = compare(&data, path, isa, &division);
                // A map that is asked for is counted like an array.
                assert_eq!(reuse, Reuse::Everything, "{isa:?} {path:?} {}", data.len());
            }
        }
        let Division { window, cut, lead, .. } = division.clone();
        for at in [lead - 1, window.start, window.end, cut - 1, cut, cut + 1, cut + 70_000, data.len() - 9] {
            let mut broken = data.clone();
            broken[at] ^= 0x80;
            compare(&broken, None, Isa::detect(), &division);
            if at >= cut {
                compare(&data[..at], None, Isa::detect(), &division);
            }
        }
    }
}

#[test]
fn a_wrong_assumption_is_noticed() {
    let rows = |len: usize| format!("[{}]", items(len, ","));
    let text = format!("\"{}\"", items(2_000, ",").replace('\\', "\\\\").replace('"', "\\\""));
    for (data, expected) in [
        // Another collection, as deep as the first.
        (format!("{{\"nodes\":{},\"edges\":{},\"more\":[1]}}", rows(4_000), rows(7_000)), Reuse::Validation),
        // A deeper collection, and an item that is larger than the window.
        (format!("{{\"nodes\":{},\"of\":{{\"edges\":{}}}}}", rows(4_000), rows(7_000)), Reuse::Nothing),
        (format!("[{},{}]", rows(4_000), rows(7_000)), Reuse::Nothing),
        // JSON in a string.
        (format!("[{text},{text},{text},{text},{text}]"), Reuse::Nothing),
        (format!("[{{\"type\":\"text\",\"text\":{}}}]", text.repeat(5).replace("\"\"", "")), Reuse::Nothing),
        // No second item.
        (format!("{}\"{}\"]", "[1,".repeat(9), " ".repeat(1 << 20)), Reuse::Nothing),
        (format!("[1,2]{}", " ".repeat(1 << 20)), Reuse::Nothing),
        // Whether there is a line break before the cut decides whether it may be NDJSON.
        (format!("[{},\n{}]\n[1]", items(6_000, ","), items(6_000, ",")), Reuse::Everything),
        (format!("[{},\n{}]", items(4_000, ","), items(6_000, ",")), Reuse::Nothing),
    ] {
        let data = data.into_bytes();
        let reuse = compare(&data, None, Isa::detect(), &division(data.len()));
        assert_eq!(reuse, expected, "{}", String::from_utf8_lossy(&data[..60]));
    }
}

#[test]
fn large_payloads_are_divided() {
    assert!(Division::new(MIN_PARALLEL_BYTES).is_none());
    for len in [MIN_PARALLEL_BYTES + 1, 9_999_999, 100_000_000, 1 << 31] {
        let Division { lead, max_lead, window, cut } = Division::in_two(len);
        assert!(0 < lead && lead <= max_lead && max_lead < window.start, "{len}");
        assert!(window.end + PIECE_BYTES == cut && cut.is_multiple_of(PIECE_BYTES), "{len}");
        // Neither thread reads more than 54 of 100 bytes, counting what the other one waits for.
        let (first, second) = (cut, lead + len - window.start);
        assert!(first.max(second) * 100 < 54 * len, "{len} {first} {second}");
    }
    let data = format!("{{\"rows\":[{}]}}", items(110_000, ",\n")).into_bytes();
    assert!(data.len() > MIN_PARALLEL_BYTES, "{}", data.len());
    let index = super::super::index_items(&data, None, true).unwrap();
    assert_eq!((index.kind(), index.len()), (Some(Kind::Array), 110_000));
    assert_eq!(Ok(&index), index_alone(&data, None, Isa::detect()).as_ref());
    let error = super::super::index_items(&data[..data.len() - 1], None, true).unwrap_err();
    assert_eq!(error.index, data.len() as u64 - 1);
}
