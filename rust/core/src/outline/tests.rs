use super::fit::Layout;
use super::*;
use crate::error::ErrorKind;
use proptest::prelude::*;
use serde_json::Value;

fn run(data: &[u8], max_bytes: usize) -> Result<String> {
    let all: Vec<_> =
        Isa::available().into_iter().map(|isa| outline_with(isa, data, max_bytes, None)).collect();
    assert!(all.iter().all(|result| *result == all[0]), "{all:?}");
    outline(data, max_bytes)
}

fn full(data: &str) -> String {
    run(data.as_bytes(), 1 << 20).unwrap()
}

/// An object of `len` members, formatted by `member`.
fn object(len: usize, member: impl Fn(usize) -> String) -> String {
    format!("{{{}}}", (0..len).map(member).collect::<Vec<_>>().join(","))
}

#[test]
fn shows_what_values_have_in_common() {
    for (data, expected) in [
        ("1", "int"),
        (" \"x\" ", "str"),
        ("null", "null"),
        ("-1.5", "float"),
        ("1e3", "float"),
        ("[]", "[]"),
        ("{}", "{}"),
        ("[{}, {}]", "[{}] ×2"),
        ("[1, 2.5, null, true]", "[float|bool|null] ×4"),
        ("[[], [1], [\"a\", 2]]", "[[str|int] ×0-2] ×3"),
        (r#"[{"a": 1, "b": null}, {"a": "x"}, null, []]"#, "[{a: str|int, b?: null}|[]|null] ×4"),
        (r#"{"a": {"b": [{"c": [1]}, {"c": []}]}}"#, "{a: {b: [{c: [int] ×0-1}] ×2}}"),
        ("{\"a\": 1}\n\n{\"b\": 2}\r\n", "ndjson [{a?: int, b?: int}] ×2"),
        ("1\nnull", "ndjson [int|null] ×2"),
    ] {
        assert_eq!(full(data), expected, "{data}");
    }
}

#[test]
fn keys_other_than_plain_words_are_quoted() {
    let data = r#"{"a-b_$@9": 1, "\u0061": 2, "": 3, "a.b": 4, "é\n\u2028\u0000\"\\": 5, "\ud800": 6}"#;
    assert_eq!(
        full(data),
        r#"{a-b_$@9: int, a: int, "": int, "a.b": int, "é\n\u2028\u0000\"\\": int, "\\ud800": int}"#
    );
    let (plain, other) = ("k".repeat(41), "é".repeat(41));
    let expected = format!("{{{}…: int, \"{}…\": int}}", &plain[..40], &other[..80]);
    assert_eq!(full(&format!(r#"{{"{plain}": 1, "{other}": 2}}"#)), expected);
}

#[test]
fn keys_that_are_data_make_a_map() {
    assert_eq!(full(r#"{"17": {"a": 1}, "18": {"b": [2]}}"#), "{<17>: {a?: int, b?: [int] ×1}} ×2");
    assert_eq!(full(r#"[{"2024-01-01": 1}, {}]"#), "[{<2024-01-01>: int} ×0-1] ×2");
    assert_eq!(full(r#"{"6f1c-00aa": 1, "deadbeef01": null}"#), "{<6f1c-00aa>: int|null} ×2");
    assert_eq!(full(r#"{"17": 1, "total": 2}"#), "{17: int, total: int}");

    let alike = |i| format!(r#""k{i}": {{"a": 1, "b": 2}}"#);
    assert_eq!(full(&object(8, alike)), "{<k0>: {a: int, b: int}} ×8");
    assert!(full(&object(7, alike)).starts_with("{k0: {a: int, b: int}, k1: "));
    assert!(full(&object(21, |i| format!(r#""k{i}": {{"a{i}": 1}}"#))).starts_with("{k0: {a0: int}, k1: "));

    assert_eq!(full(&object(21, |i| format!(r#""k{i}": [{i}]"#))), "{<k0>: [int] ×1} ×21");
    assert!(full(&object(20, |i| format!(r#""k{i}": [{i}]"#))).starts_with("{k0: [int] ×1, k1: "));
    assert_eq!(full(&object(100, |i| format!(r#""k{i}": {i}"#))), "{<k0>: int} ×100");
    assert!(full(&object(99, |i| format!(r#""k{i}": {i}"#))).starts_with("{k0: int, k1: int"));
    let sparse: Vec<String> = (0..30).map(|i| format!(r#"{{"k{i}": 1}}"#)).collect();
    assert_eq!(full(&format!("[{}]", sparse.join(","))), "[{<k0>: int} ×1] ×30");
    let rows = vec![object(200, |i| format!(r#""k{i}": {i}"#)); 2];
    assert!(full(&format!("[{}]", rows.join(","))).starts_with("[{k0: int, k1: int"));
}

#[test]
fn a_smaller_budget_is_coarser() {
    let data = r#"{"a": {"b": {"c": 1}, "d": 2}, "e": [{"f": 3, "g": 4}], "h": 5}"#;
    let mut shown: Vec<String> =
        (MIN_BYTES..80).map(|max_bytes| run(data.as_bytes(), max_bytes).unwrap()).collect();
    shown.dedup();
    assert_eq!(
        shown,
        [
            "{…}",
            "{a: {…}, …}",
            "{a: {…}, e: […] ×1, …}",
            "{a: {…}, e: […] ×1, h: int}",
            "{a: {b: {…}, …}, e: […] ×1, h: int}",
            "{a: {b: {…}, …}, e: [{…}] ×1, h: int}",
            "{a: {b: {…}, d: int}, e: [{…}] ×1, h: int}",
            "{a: {b: {…}, d: int}, e: [{f: int, …}] ×1, h: int}",
            "{a: {b: {…}, d: int}, e: [{f: int, g: int}] ×1, h: int}",
            "{a: {b: {c: int}, d: int}, e: [{f: int, g: int}] ×1, h: int}",
        ]
    );
}

#[test]
fn counts_include_items_beyond_the_sample() {
    let many = vec![r#"{"a": 1}"#; 5000];
    assert_eq!(full(&format!("[{}, 7]", many.join(","))), "[{a: int}] ×5001");
    assert_eq!(full(&many.join("\n")), "ndjson [{a: int}] ×5000");
    let keys = object(3000, |i| format!(r#""{i}": {i}"#));
    assert_eq!(full(&keys), "{<0>: int} ×3000");
    let mixed =
        object(3000, |i| if i % 2 == 0 { format!(r#""k{i}": 1"#) } else { format!(r#""k{i}": "x""#) });
    assert!(full(&mixed).ends_with(", k255: str, …}"));
}

#[test]
fn a_sample_has_the_count_of_all_items() {
    let data = br#"{"page": 1, "rows": [{"tags": [1]}, {"tags": []}], "total": 3}"#;
    let expected = "{page: int, rows: [{tags: [int] \u{d7}0-1}] \u{d7}5000, total: int}";
    assert_eq!(outline_sample(data, 512, 20, 5000).unwrap(), expected);
    assert_eq!(outline_sample(br#"{"17": 1}"#, 512, 0, 9).unwrap(), "{<17>: int} \u{d7}9");
    assert_eq!(outline_sample(b"[1]", 512, 0, 7).unwrap(), "[int] \u{d7}7");
}

/// Asserts that the outline of an indexed document is that of the document.
fn assert_index_changes_nothing(data: &str) {
    for mark in ["", "\u{feff}"] {
        let marked = [mark, data].concat();
        let mut survey = crate::Survey::new(Some(true), None);
        survey.feed(marked.as_bytes());
        let items = survey.finish().items.unwrap();
        for max_bytes in [40, 10_000] {
            let whole = run(data.as_bytes(), max_bytes).unwrap();
            for isa in Isa::available() {
                let indexed = outline_indexed_with(isa, marked.as_bytes(), max_bytes, &items).unwrap();
                assert_eq!(indexed, whole, "{data:.200}");
            }
        }
    }
}

#[test]
fn the_index_of_a_large_document_changes_nothing() {
    let items = |count: usize| -> Vec<String> {
        (0..count).map(|i| format!(r#"{{"id": {i}, "k{}": [{i}]}}"#, i % 300)).collect()
    };
    for count in [99, 100, 101, 5000] {
        let array = format!(" [{}] ", items(count).join(" ,\n"));
        assert_index_changes_nothing(&array);
        assert_index_changes_nothing(&format!(r#"{{"a": [1, 2], "rows": {array}, "b": {{"c": [[], 7]}}}}"#));
        assert_index_changes_nothing(&items(count).join("\n\n"));
        assert_index_changes_nothing(&format!("[{}]\n[]\n", "1,".repeat(count) + "1"));
        assert_index_changes_nothing(&object(count, |i| format!(r#""{i}": {{"a": {i}}}"#)));
        assert_index_changes_nothing(&object(count, |i| format!(r#""key {i}": "some text""#)));
    }
    let wide = format!("[{}]", "1,".repeat(30_000) + "1");
    assert_index_changes_nothing(&format!("[{wide}, {wide}, {wide}]"));
}

#[test]
fn items_are_not_read_beyond_the_sample() {
    let valid = format!("[{}]", vec!["[1]"; 500].join(","));
    let items = crate::index_items(valid.as_bytes(), None, true).unwrap();
    let changed = valid.clone().into_bytes().into_iter().enumerate();
    let changed: Vec<u8> =
        changed.map(|(i, byte)| if (1000..1900).contains(&i) { b'!' } else { byte }).collect();
    assert_eq!(outline_indexed(&changed, 512, &items).unwrap(), full(&valid));
    assert_ne!(run(&changed, 512).unwrap(), full(&valid));
}

#[test]
fn the_index_of_other_data_does_not_panic() {
    let many = format!("[{}]", vec!["[1]"; 500].join(","));
    let few = format!("[{}]", vec!["1"; 150].join(","));
    for (data, other) in [(&many, &few), (&few, &many)] {
        let items = crate::index_items(other.as_bytes(), None, true).unwrap();
        let _ = outline_indexed(data.as_bytes(), 512, &items);
    }
}

#[test]
fn a_large_array_leaves_a_share_to_later_fields() {
    let hundred = |item: &str| format!("[{}]", vec![item; 100].join(","));
    let data = format!(r#"{{"a": {}, "b": {{"c": 1}}}}"#, hundred(&hundred(&hundred("1"))));
    assert_eq!(full(&data), "{a: [[[int] ×100] ×100] ×100, b: {c: int}}");
}

#[test]
fn rejects_invalid_json() {
    for (data, index) in
        [("", 0), ("[1,]", 3), ("[1] 2", 4), ("{\"a\" 1}", 5), ("[1}", 2), ("{}\nx", 3), ("01", 0)]
    {
        let error = run(data.as_bytes(), 512).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::InvalidJson(_)), "{error}");
        assert_eq!(error.index, index, "{data}");
    }
    assert!(matches!(run(b"1", 7).unwrap_err().kind, ErrorKind::InvalidArgument(_)));
}

#[test]
fn hostile_shapes_stay_small() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    assert!(full(&deep).ends_with("×1] ×1") && full(&deep).contains("[…] ×1"));
    assert!(run("[".repeat(1_000_000).as_bytes(), 512).is_err());
    assert!(run(r#"{"a":"#.repeat(1_000_000).as_bytes(), 512).is_err());

    // A hundred thousand different keys, none of them ids, none in a map.
    let member = |i: usize| format!(r#""k{i}": {}"#, if i.is_multiple_of(2) { "1" } else { "\"x\"" });
    let items: Vec<String> =
        (0..500).map(|i| format!(r#""o{i}": {}"#, object(200, |j| member(i * 200 + j)))).collect();
    let data = format!("{{{}}}", items.join(","));
    let document = read::read(Isa::detect(), data.as_bytes(), None).unwrap();
    assert!(Layout::new(&document).steps().len() <= read::MAX_FIELDS);
}

/// Documents with few distinct keys, so that objects share some.
fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        crate::testing::text().prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 80, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(("[abé7.]{0,2}", inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn sizes_match_the_rendered_text(value in documents()) {
        let data = value.to_string();
        let mut document = read::read(Isa::detect(), data.as_bytes(), None).unwrap();
        document.shape.find_maps();
        let layout = Layout::new(&document);
        let steps = layout.steps();
        let texts: Vec<String> = (0..=steps.len()).map(|shown| layout.render(&steps[..shown])).collect();
        prop_assert_eq!(layout.sizes(&steps), texts.iter().map(String::len).collect::<Vec<_>>());
        prop_assert!(!texts[steps.len()].contains('…'), "{}", texts[steps.len()]);
    }

    #[test]
    fn an_index_changes_nothing(
        value in documents(), lines in prop::collection::vec(documents(), 2..4), count in 1..300_usize,
    ) {
        assert_index_changes_nothing(&value.to_string());
        assert_index_changes_nothing(&lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"));
        let (value, others) = (value.to_string(), lines[0].to_string());
        let array = format!("[{}]", vec![value.as_str(); count].join(","));
        assert_index_changes_nothing(&array);
        assert_index_changes_nothing(&format!(r#"{{"a": {others}, "items": {array}, "b": {others}}}"#));
        assert_index_changes_nothing(&object(count, |i| format!(r#""{i}": {value}"#)));
    }

    #[test]
    fn no_budget_is_exceeded(value in documents()) {
        let data = value.to_string();
        let whole = full(&data);
        for max_bytes in MIN_BYTES..=whole.len() {
            let text = run(data.as_bytes(), max_bytes).unwrap();
            prop_assert!(text.len() <= max_bytes && !text.contains('\n'), "{}", text);
        }
        prop_assert_eq!(run(data.as_bytes(), whole.len().max(MIN_BYTES)).unwrap(), whole);
    }

    #[test]
    fn white_space_does_not_matter(value in documents()) {
        prop_assert_eq!(full(&value.to_string()), full(&serde_json::to_string_pretty(&value).unwrap()));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        value in documents(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
        noise in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut data = value.to_string().into_bytes();
        let at = at.index(data.len());
        data[at] = byte;
        for data in [&data, &data[..at], &noise] {
            if let Ok(text) = run(data, 64) {
                prop_assert!(text.len() <= 64);
            }
        }
    }
}
