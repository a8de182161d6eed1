use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::testing::{json, maps};

/// Reference: reads the whole payload byte by byte.
mod naive {
    use super::*;

    /// A value's span and content.
    pub(super) struct Node {
        pub(super) start: usize,
        pub(super) end: usize,
        pub(super) first: u8,
        pub(super) content: Content,
    }

    pub(super) enum Content {
        Scalar,
        /// Items, and where each begins: right after the bracket or comma before it.
        Array(Vec<(usize, Node)>),
        Object(Vec<Member>),
    }

    /// An entry of an object, and where it begins: right after the brace or comma before it.
    pub(super) struct Member {
        pub(super) start: usize,
        /// Without its quotes.
        pub(super) raw_key: Vec<u8>,
        pub(super) key: Option<String>,
        pub(super) value: Node,
    }

    pub(super) fn skip_white(data: &[u8], mut at: usize) -> usize {
        while at < data.len() && data[at].is_ascii_whitespace() {
            at += 1;
        }
        at
    }

    fn text_end(data: &[u8], start: usize) -> usize {
        let mut at = start + 1;
        while data[at] != b'"' {
            at += if data[at] == b'\\' { 2 } else { 1 };
        }
        at + 1
    }

    pub(super) fn read(data: &[u8], at: usize) -> Node {
        let start = skip_white(data, at);
        let mut at = start + 1;
        let content = match data[start] {
            b'[' => {
                let mut items = Vec::new();
                while data[skip_white(data, at)] != b']' {
                    let node = read(data, at);
                    let end = skip_white(data, node.end);
                    items.push((at, node));
                    at = end + usize::from(data[end] == b',');
                }
                at = skip_white(data, at) + 1;
                Content::Array(items)
            }
            b'{' => {
                let mut members = Vec::new();
                while data[skip_white(data, at)] != b'}' {
                    let key = skip_white(data, at);
                    let key_end = text_end(data, key);
                    let node = read(data, skip_white(data, key_end) + 1);
                    let end = skip_white(data, node.end);
                    members.push(Member {
                        start: at,
                        raw_key: data[key + 1..key_end - 1].to_vec(),
                        key: serde_json::from_slice(&data[key..key_end]).ok(),
                        value: node,
                    });
                    at = end + usize::from(data[end] == b',');
                }
                at = skip_white(data, at) + 1;
                Content::Object(members)
            }
            b'"' => {
                at = text_end(data, start);
                Content::Scalar
            }
            _ => {
                at = start
                    + data[start..]
                        .iter()
                        .position(|b| b",]} \t\r\n".contains(b))
                        .unwrap_or(data.len() - start);
                Content::Scalar
            }
        };
        Node { start, end: at, first: data[start], content }
    }

    fn escape(key: &str) -> String {
        key.replace('~', "~0").replace('/', "~1")
    }

    type Collections<'a> = Vec<(Option<String>, &'a Node)>;

    /// Returns the arrays and maps that at most four object keys lead to, each after those inside of it, with their
    /// paths if they have one.
    pub(super) fn collections<'a>(node: &'a Node, path: Option<&str>, depth: usize) -> Collections<'a> {
        let mut found = Vec::new();
        match &node.content {
            _ if depth > 4 => {}
            Content::Scalar => {}
            Content::Array(_) => found.push((path.map(str::to_owned), node)),
            Content::Object(members) => {
                for member in members {
                    let key = member.key.as_ref().filter(|_| member.raw_key.len() <= 4096);
                    let path = path.and_then(|path| Some(format!("{path}/{}", escape(key?))));
                    found.extend(collections(&member.value, path.as_deref(), depth + 1));
                }
                let size = |node: &Node| node.end - node.start;
                if is_map(members) && found.iter().all(|(_, inner)| 2 * size(inner) <= size(node)) {
                    found.push((path.map(str::to_owned), node));
                }
            }
        }
        found
    }

    /// Whether the values of an object are alike.
    fn is_map(members: &[Member]) -> bool {
        let kind = |node: &Node| match (&node.content, node.first) {
            (_, b'-') => b'0',
            (_, b't') => b'f',
            (_, digit) if digit.is_ascii_digit() => b'0',
            (_, first) => first,
        };
        let values: Vec<&Node> =
            members.iter().map(|member| &member.value).filter(|node| node.first != b'n').collect();
        let Some(first) = values.first().map(|node| kind(node)) else { return false };
        let needed = match first {
            b'{' => 8,
            b'[' => 32,
            _ => 100,
        };
        let Some(values) = values.get(..needed) else { return false };
        if values.iter().any(|node| kind(node) != first) {
            return false;
        }
        let keys: Vec<Vec<&[u8]>> = values
            .iter()
            .map(|node| match &node.content {
                Content::Object(members) => {
                    let keys = members.iter().map(|member| &member.raw_key[..]);
                    keys.filter(|key| key.len() <= 4096).take(32).collect()
                }
                _ => Vec::new(),
            })
            .collect();
        let all = keys.concat();
        let distinct: std::collections::HashSet<&[u8]> = all.iter().copied().collect();
        4 * all.len() >= distinct.len() * needed
    }

    /// Returns the index of the main collection: the largest, the first of several.
    pub(super) fn main(root: &Node) -> ItemIndex {
        let mut best: Option<(String, &Node)> = None;
        for (path, node) in collections(root, Some(""), 0) {
            let is_better =
                best.as_ref().is_none_or(|(_, best)| node.end - node.start > best.end - best.start);
            if let (Some(path), true) = (path, is_better) {
                best = Some((path, node));
            }
        }
        best.map_or_else(ItemIndex::default, |(path, node)| index(node, &path).unwrap())
    }

    pub(super) fn find<'a>(node: &'a Node, tokens: &[String]) -> Option<&'a Node> {
        let Some((token, rest)) = tokens.split_first() else { return Some(node) };
        match &node.content {
            Content::Array(items) => find(&items.get(token.parse::<usize>().ok()?)?.1, rest),
            Content::Object(members) => {
                find(&members.iter().find(|member| member.key.as_ref() == Some(token))?.value, rest)
            }
            Content::Scalar => None,
        }
    }

    pub(super) fn index(node: &Node, path: &str) -> Option<ItemIndex> {
        let (kind, starts): (_, Vec<usize>) = match &node.content {
            Content::Scalar => return None,
            Content::Array(items) => (Kind::Array, items.iter().map(|(start, _)| *start).collect()),
            Content::Object(members) => (Kind::Map, members.iter().map(|member| member.start).collect()),
        };
        Some(build(kind, Some(path), node.start, node.end, starts.into_iter()))
    }

    pub(super) fn build(
        kind: Kind,
        path: Option<&str>,
        start: usize,
        end: usize,
        starts: impl Iterator<Item = usize>,
    ) -> ItemIndex {
        let mut entries: Vec<Entry> = Vec::new();
        let mut count = 0;
        for offset in starts.map(|start| start as u64) {
            if entries.last().is_none_or(|last| offset / BLOCK_BYTES > last.offset / BLOCK_BYTES) {
                entries.push(Entry { offset, number: count });
            }
            count += 1;
        }
        let path = path.map(str::to_owned);
        ItemIndex {
            kind: Some(kind),
            path,
            start: start as u64,
            end: end as u64,
            count,
            entries,
            header: Vec::new(),
        }
    }
}

fn index_in_pieces(
    data: &[u8],
    cuts: &[usize],
    path: Option<&str>,
    validate: bool,
    isa: Isa,
) -> Result<ItemIndex> {
    let mut indexer = ItemIndexer::with_isa(path, validate, isa)?;
    let mut at = 0;
    for &cut in cuts {
        let cut = cut.clamp(at, data.len());
        indexer.feed(&data[at..cut])?;
        at = cut;
    }
    indexer.feed(&data[at..])?;
    indexer.finish()
}

use crate::scan::Isa;

fn compare(
    data: &[u8],
    cuts: &[usize],
    path: Option<&str>,
    expected: &Result<ItemIndex>,
) -> std::result::Result<(), TestCaseError> {
    for isa in Isa::available() {
        for validate in [true, false] {
            prop_assert_eq!(
                &index_in_pieces(data, &[], path, validate, isa),
                expected,
                "{:?}",
                String::from_utf8_lossy(data)
            );
            prop_assert_eq!(
                &index_in_pieces(data, cuts, path, validate, isa),
                expected,
                "in pieces {:?}",
                cuts
            );
        }
    }
    if let Ok(index) = expected {
        prop_assert_eq!(&ItemIndex::from_bytes(&index.to_bytes()).unwrap(), index);
    }
    Ok(())
}

/// Items whose commas fall on every boundary of the pieces that are validated and located in turn.
#[test]
fn validating_does_not_change_the_items() {
    let items = |item: &str, len: usize| vec![item; len].join(",");
    let long = format!("\"{}\"", "x, [".repeat(50_000));
    for padding in [0, 1, 14, 15, 16] {
        let array = format!(
            "[{}{},{long},{long},{}]",
            " ".repeat(padding),
            items("12345678901234_", 9000).replace('_', "5"),
            items("{\"k\":[1,{\"a\":[2]}]}", 9000),
        );
        let deep =
            format!("{{\"skipped\":{{\"a\":[{array}]}},\"x\":[0,[7],{{\"y\":{array}}}],\"map\":{{}}}}");
        let map: String = (0..20_000).map(|i| format!("\"{i:06}\":{{\"id\":{i}}},")).collect();
        let map = format!("{{\"m\":{{{}\"last\":{{\"id\":0}}}}}}", map);
        let rows: String =
            (0..20_000).map(|i| format!("{{\"id\":{i}}}{}", ["\n", " \n", "\r\n", "\n "][i % 4])).collect();
        let blank = format!("{}\n{rows}\n \n{long}\n{rows}{}1", " ".repeat(padding), " ".repeat(70_000));
        for (data, path) in [
            (&array, None),
            (&deep, None),
            (&deep, Some("/x/2/y")),
            (&deep, Some("/x")),
            (&deep, Some("/map")),
            (&map, None),
            (&rows, None),
            (&blank, None),
        ] {
            let data = data.as_bytes();
            let expected = index_in_pieces(data, &[], path, false, Isa::available()[0]);
            for isa in Isa::available() {
                let cut = 65_536 + 64 * padding;
                for cuts in [&[][..], &[cut], &[3, cut, cut + 1]] {
                    assert_eq!(
                        index_in_pieces(data, cuts, path, true, isa),
                        expected,
                        "{isa:?} {path:?} {cuts:?}"
                    );
                }
            }
        }
    }
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..600_usize, 0..4).prop_map(|mut cuts| {
        cuts.sort_unstable();
        cuts
    })
}

proptest! {
    #[test]
    fn finds_the_main_collection(value in prop_oneof![json(), maps()], pretty in any::<bool>(), cuts in cuts()) {
        let data = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
        let expected = naive::main(&naive::read(&data, 0));
        compare(&data, &cuts, None, &Ok(expected))?;
    }

    #[test]
    fn follows_a_pointer(value in json(), picks in prop::collection::vec(any::<prop::sample::Index>(), 0..5), stray in any::<bool>(), cuts in cuts()) {
        let data = serde_json::to_vec(&value).unwrap();
        let mut tokens = Vec::new();
        let mut here = &value;
        for pick in picks {
            here = match here {
                Value::Array(items) if !items.is_empty() => {
                    let at = pick.index(items.len());
                    tokens.push(at.to_string());
                    &items[at]
                }
                Value::Object(members) if !members.is_empty() => {
                    let (key, member) = members.iter().nth(pick.index(members.len())).unwrap();
                    tokens.push(key.clone());
                    member
                }
                _ => break,
            };
        }
        if stray {
            tokens.push("7".to_owned());
        }
        let path: String = tokens.iter().map(|token| format!("/{}", token.replace('~', "~0").replace('/', "~1"))).collect();
        let root = naive::read(&data, 0);
        let expected = naive::find(&root, &tokens)
            .and_then(|node| naive::index(node, &path))
            .ok_or_else(|| Error::no_items(&path));
        compare(&data, &cuts, Some(&path), &expected)?;
    }

    #[test]
    fn ndjson_values_are_items(values in prop::collection::vec(json(), 2..8), gap in "( ?\r?\n){1,3} ?", lead in "[ \n]{0,3}", cuts in cuts()) {
        let mut data = lead.into_bytes();
        let mut starts = Vec::new();
        for value in &values {
            starts.push(data.len());
            data.extend(serde_json::to_vec(value).unwrap());
            data.extend(gap.as_bytes());
        }
        let expected = naive::build(Kind::Ndjson, Some(""), starts[0], data.len(), starts.into_iter());
        compare(&data, &cuts, None, &Ok(expected.clone()))?;
        compare(&data, &cuts, Some(""), &Ok(expected))?;
    }

    #[test]
    fn every_line_is_indexed(text in "[a\n\r]{0,300}") {
        let starts = text.split_inclusive('\n').scan(0, |at, line| Some(std::mem::replace(at, *at + line.len())));
        let index = index_lines(text.as_bytes());
        prop_assert_eq!(&index, &naive::build(Kind::Lines, None, 0, text.len(), starts));
        prop_assert_eq!(ItemIndex::from_bytes(&index.to_bytes()).unwrap(), index);
    }

    #[test]
    fn arbitrary_bytes_give_an_index_or_an_error(data in prop::collection::vec(prop_oneof![Just(b'['), Just(b'{'), Just(b'"'), Just(b':'), Just(b','), Just(b']'), Just(b'}'), Just(b'\n'), any::<u8>()], 0..300), cuts in cuts()) {
        for path in [None, Some(""), Some("/0"), Some("/a/0")] {
            let whole = index_in_pieces(&data, &[], path, false, Isa::detect());
            for isa in Isa::available() {
                prop_assert_eq!(&index_in_pieces(&data, &cuts, path, false, isa), &whole);
            }
            if let Ok(index) = whole {
                let page = crate::items::read_items(&data, 0, &index, crate::Range::From(0), 100);
                prop_assert!(page.is_err() || page.is_ok_and(|page| page.content.len() <= 100));
            }
        }
    }

    /// Every index has exactly one encoding, so equal indexes are equal bytes.
    #[test]
    fn loaded_indexes_serialize_to_the_same_bytes(
        which in 0..6_usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![Just(vec![]), Just(vec![0x80, 0]), prop::collection::vec(any::<u8>(), 1..3)]), 1..4),
    ) {
        let lines = "x\n".repeat(100_000);
        let index = match which {
            0 => ItemIndex::default(),
            1 => index_lines(b""),
            2 => index_lines(lines.as_bytes()),
            3 => index_items(b"1\n2\n", None, true).unwrap(),
            4 => index_items(br#"{"a": {"b": 1, "c": 2}}"#, Some("/a"), true).unwrap(),
            _ => index_items(br#"{"a": {"b": [1, 2, 3]}}"#, None, true).unwrap(),
        };
        let mut bytes = index.to_bytes();
        for (at, replacement) in edits {
            let at = at.index(bytes.len() - 4) + 4;
            bytes.splice(at..=at, replacement);
            if bytes.len() == 4 {
                break;
            }
        }
        if let Ok(loaded) = ItemIndex::from_bytes(&bytes) {
            prop_assert_eq!(loaded.to_bytes(), bytes);
        }
    }

    #[test]
    fn damaged_indexes_fail_or_stay_in_bounds(bytes in prop::collection::vec(any::<u8>(), 0..60), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let _ = ItemIndex::from_bytes(&[&b"hgi1"[..], &bytes].concat());
        let text = "x\n".repeat(100_000);
        let mut good = index_lines(text.as_bytes()).to_bytes();
        let at = at.index(good.len());
        good[at] = byte;
        if let Ok(index) = ItemIndex::from_bytes(&good) {
            let page = crate::lines::read_lines(text.as_bytes(), Some(&index), crate::Range::From(50_000), 100, crate::Escaping::Never);
            prop_assert!(page.is_err() || page.is_ok_and(|page| page.span.end <= text.len()));
        }
    }
}

/// Items smaller and larger than a block: some blocks have many items, others none.
fn large() -> Vec<u8> {
    let mut data = b" [ ".to_vec();
    for i in 0..3000_usize {
        let item = match i % 500 {
            7 => format!("\"{}\"", "x".repeat(200_000 + i)),
            8 => format!("[{}\n]", "1 , ".repeat(BLOCK_BYTES as usize / 4) + "2"),
            _ => format!("{{\"id\": {i}, \"t\": [{}]}}", "0,".repeat(i % 40) + "1"),
        };
        data.extend(item.as_bytes());
        data.extend(if i == 2999 { &b"\n]\n"[..] } else { b" ,\n" });
    }
    data
}

#[test]
fn each_block_has_one_entry() {
    let data = large();
    let expected = naive::index(&naive::read(&data, 0), "").unwrap();
    assert!(expected.entries.len() > 15);
    for isa in Isa::available() {
        for validate in [true, false] {
            for step in [data.len(), 1, 63, 64, 65, BLOCK_BYTES as usize - 1, BLOCK_BYTES as usize] {
                let step = if step == 1 && validate { 7 } else { step };
                let cuts: Vec<_> = (0..data.len()).step_by(step).collect();
                assert_eq!(
                    index_in_pieces(&data, &cuts, None, validate, isa).as_ref(),
                    Ok(&expected),
                    "{isa:?} {step}"
                );
            }
        }
    }
    assert!(expected.to_bytes().len() < data.len() / 2000 + 32);
}

/// A map of `len` small entries, before, between and after which there are others.
fn large_map(len: usize, others: &[String]) -> String {
    let mut data = String::from("{");
    for i in 0..len {
        if let Some(other) =
            others.get(i * others.len() / len).filter(|_| i * others.len() % len < others.len())
        {
            data.push_str(&format!("\"o,{i}\" : {other} ,"));
        }
        let text = "x\\\"}".repeat(i % 50);
        data.push_str(&format!("\n\"k{i}\":{{\"id\": {i}, \"t\": [\"{text}\", {{}}]}},"));
    }
    data + "\"z\": null}"
}

#[test]
fn entries_of_large_maps_are_counted() {
    let array = |len: usize| format!("[{}]", vec!["{\"a\": [1, 2]}"; len].join(", "));
    let map = |len: usize| large_map(len, &[]);
    let text = |len: usize| format!("\"{}\"", "y,\\\\".repeat(len));
    let inside = |value: String| format!("{{\"id\": {{\"b\": {value}}}, \"t\": {}}}", text(9));
    let mut paths = Vec::new();
    for others in [
        vec![],
        vec![text(40_000), "7".to_owned(), array(9_000), text(400_000)],
        vec![inside(array(3_000)), inside(array(9_000)), inside(array(40_000)), inside(text(50_000))],
        vec![inside(array(90_000)), inside(map(3_000))],
        vec![map(1_000), inside(map(1_500)), inside(map(30_000)), inside(text(50_000))],
        vec![inside(inside(map(30_000))), array(2_000)],
    ] {
        for len in [1_500, 6_000] {
            for (open, close) in [("", ""), ("{\"n\": 1, \"at\": {\"x\": ", "}}")] {
                let data = [open, &large_map(len, &others), close].concat().into_bytes();
                let expected = naive::main(&naive::read(&data, 0));
                paths.push(expected.path.clone().unwrap());
                for isa in Isa::available() {
                    // The validator counts whole blocks of 64 bytes; entries in other pieces are scanned.
                    for (step, validate) in [
                        (data.len(), true),
                        (data.len(), false),
                        (1_000_003, false),
                        (65_536, true),
                        (65_536, false),
                        (32_768 + 64, true),
                        (32_768 + 3, true),
                        (4_096, true),
                        (997, false),
                    ] {
                        let cuts: Vec<_> = (0..data.len()).step_by(step).collect();
                        let index = index_in_pieces(&data, &cuts, None, validate, isa);
                        assert_eq!(index.as_ref(), Ok(&expected), "{isa:?} {step} {validate} {len}");
                    }
                }
            }
        }
    }
    // The map itself, and each kind of collection inside.
    paths.sort();
    paths.dedup();
    assert!(paths.len() > 8, "{paths:?}");
}

#[test]
fn spans_contain_their_items() {
    let data = large();
    let root = naive::read(&data, 0);
    let index = naive::index(&root, "").unwrap();
    let naive::Content::Array(items) = &root.content else { panic!() };
    for offset in (0..3100).step_by(7) {
        for limit in [1, 2, 100, 5000] {
            let span = index.span(crate::Range::Bounded { offset, limit });
            assert_eq!(span.count, limit.min(3000_u64.saturating_sub(offset)));
            if span.count > 0 {
                assert!(span.first <= offset && span.start <= items[offset as usize].0 as u64);
                assert_eq!(items[span.first as usize].0 as u64, span.start);
                assert!(span.end >= items[(offset + span.count - 1) as usize].1.end as u64);
                let page = crate::items::read_items(
                    &data[span.start as usize..span.end as usize],
                    span.start,
                    &index,
                    crate::Range::Bounded { offset, limit },
                    100_000,
                )
                .unwrap();
                let whole = crate::items::read_items(
                    &data,
                    0,
                    &index,
                    crate::Range::Bounded { offset, limit },
                    100_000,
                )
                .unwrap();
                assert_eq!(page, whole);
            }
        }
    }
}

#[test]
fn counts_and_offsets_beyond_32_bits_round_trip() {
    let entries = (0..70_000)
        .map(|block| Entry { offset: block * BLOCK_BYTES + 3, number: block * (1 << 16) })
        .collect();
    let index = ItemIndex {
        kind: Some(Kind::Array),
        path: Some("/a~1b/ü".to_owned()),
        start: 2,
        end: 70_000 * BLOCK_BYTES,
        count: 70_000 << 16,
        entries,
        header: Vec::new(),
    };
    assert!(index.end > 1 << 32 && index.count > 1 << 32);
    let bytes = index.to_bytes();
    assert!((bytes.len() as u64) < index.end / 2000);
    assert_eq!(ItemIndex::from_bytes(&bytes), Ok(index.clone()));
    let span = index.span(crate::Range::Bounded { offset: (69_999 << 16) + 5, limit: 10 });
    assert_eq!(
        span,
        Span { start: 69_999 * BLOCK_BYTES + 3, end: index.end, first: 69_999 << 16, count: 10 }
    );
}

#[test]
fn a_forged_index_is_rejected() {
    let good = ItemIndex {
        kind: Some(Kind::Array),
        path: Some(String::new()),
        start: 0,
        end: 3 * BLOCK_BYTES,
        count: 10,
        entries: vec![Entry { offset: 1, number: 0 }, Entry { offset: BLOCK_BYTES + 5, number: 4 }],
        header: Vec::new(),
    };
    assert_eq!(ItemIndex::from_bytes(&good.to_bytes()).as_ref(), Ok(&good));
    let after_end = Entry { offset: 3 * BLOCK_BYTES, number: 7 };
    let too_many = Entry { offset: 2 * BLOCK_BYTES, number: 10 };
    for entry in [after_end, too_many] {
        let mut forged = good.clone();
        forged.entries.push(entry);
        assert!(ItemIndex::from_bytes(&forged.to_bytes()).is_err(), "{entry:?}");
    }
    // A kind, no path, and a start of more than 64 bits.
    let too_large = [&b"hgi1\x01\x00"[..], &[0xff; 9], &[0x7f, 0, 0, 0]].concat();
    assert!(ItemIndex::from_bytes(&too_large).is_err());

    let map = ItemIndex { kind: Some(Kind::Map), ..good.clone() };
    assert_eq!(map.to_bytes()[..5], *b"hgi1\x06");
    assert_eq!(ItemIndex::from_bytes(&map.to_bytes()).as_ref(), Ok(&map));
    assert!(ItemIndex::from_bytes(&ItemIndex { path: None, ..map }.to_bytes()).is_err());
    let no_kind = ItemIndex { kind: None, ..good.clone() };
    let no_path = ItemIndex { path: None, ..good.clone() };
    let rows_inside = ItemIndex { kind: Some(Kind::Ndjson), path: Some("/a".to_owned()), ..good.clone() };
    let csv_inside = ItemIndex { kind: Some(Kind::Csv), path: Some("/a".to_owned()), ..good.clone() };
    let header_of_array = ItemIndex { header: b"a".to_vec(), ..good.clone() };
    let lines_inside = ItemIndex { kind: Some(Kind::Lines), ..good.clone() };
    let empty_with_a_span = ItemIndex { start: 1, end: 2, ..ItemIndex::default() };
    for forged in
        [no_kind, no_path, rows_inside, csv_inside, header_of_array, lines_inside, empty_with_a_span]
    {
        assert!(ItemIndex::from_bytes(&forged.to_bytes()).is_err(), "{forged:?}");
    }

    let lines = index_lines(b"one\ntwo\n");
    let page = crate::lines::read_lines(
        b"one\ntwo\nthree",
        Some(&lines),
        crate::Range::From(0),
        100,
        crate::Escaping::Never,
    );
    assert!(matches!(page.unwrap_err().kind, crate::ErrorKind::CorruptIndex(_)));
}
