//! Pages of items: compared with the items of serde_json. They leave no gap, keep to their budget, and need
//! no more than their span.

use forebay_core::{ItemIndex, ItemPage, Range, index_items, read_items};
use serde_json::{Map, Value};

use crate::{Input, collections, oracle};

/// Smallest budget of a page.
const MIN_BYTES: usize = 15;

pub fn compare(input: Input<'_>) {
    let Input { knobs, data } = input;
    let (limit, max_bytes) = (1 + u64::from(knobs[2]), MIN_BYTES + input.budget() as usize);
    match index_items(data, None, true) {
        Ok(index) => check(data, &index, limit, max_bytes),
        Err(_) => survive(data, limit, max_bytes),
    }
}

fn check(data: &[u8], index: &ItemIndex, limit: u64, max_bytes: usize) {
    let items = items(data, index);
    let mut next = Some(0);
    let mut at = 0;
    while let Some(offset) = next {
        assert_eq!(offset, at as u64);
        let range = Range::Bounded { offset, limit };
        let page = read_items(data, 0, index, range, max_bytes).expect("a page of a valid payload");
        assert!(page.content.len() <= max_bytes && oracle::is_json(&page.content));
        assert_eq!(read_span(data, index, range, max_bytes), page);
        let count = page.returned as usize;
        assert!(count > 0 || index.is_empty(), "a page without progress");
        if let Some(items) = &items {
            check_content(data, &page, &items[at..at + count]);
        }
        at += count;
        next = page.next_offset;
    }
    assert_eq!(at as u64, index.len());
}

fn check_content(data: &[u8], page: &ItemPage, items: &[Value]) {
    match &page.truncated {
        None => assert_eq!(oracle::parse(&page.content), Some(Value::from(items))),
        Some(cut) => {
            let start = cut.byte_offset as usize;
            let whole = oracle::parse(&data[start..start + cut.size_bytes as usize]).expect("a whole value");
            let whole = page.truncated_key.as_ref().map_or(whole.clone(), |key| map_item(key, &whole));
            assert_eq!(Some(&whole), items.first());
        }
    }
}

fn read_span(data: &[u8], index: &ItemIndex, range: Range, max_bytes: usize) -> ItemPage {
    let span = index.span(range);
    let window = &data[span.start as usize..span.end as usize];
    read_items(window, span.start, index, range, max_bytes).expect("the span suffices")
}

/// Returns the items, where serde_json understands them in the same way.
fn items(data: &[u8], index: &ItemIndex) -> Option<Vec<Value>> {
    if !oracle::is_json(data) {
        return oracle::rows(data)?.into_iter().map(oracle::parse).collect();
    }
    let value = oracle::parse(data)?;
    Some(match index.path().and_then(|path| value.pointer(path)) {
        Some(Value::Array(items)) => items.clone(),
        Some(Value::Object(members)) => {
            let keys = collections::keys(&data[index.start() as usize..index.end() as usize]);
            let keys = keys.into_iter().map(|key| serde_json::from_slice(key).expect("a key"));
            keys.map(|key: String| map_item(&key, &members[&key])).collect()
        }
        _ => Vec::new(),
    })
}

/// Returns an entry of a map as an item.
fn map_item(key: &str, value: &Value) -> Value {
    let mut item = Map::from_iter([("_key".to_owned(), Value::from(key))]);
    match value {
        Value::Object(members) if !members.contains_key("_key") => item.extend(members.clone()),
        _ => _ = item.insert("_value".to_owned(), value.clone()),
    }
    Value::Object(item)
}

/// Checks that what is not JSON gives an error or pages within the budget, and that the pages end.
fn survive(data: &[u8], limit: u64, max_bytes: usize) {
    let Ok(index) = index_items(data, None, false) else { return };
    let mut next = Some(0);
    while let Some(offset) = next {
        let Ok(page) = read_items(data, 0, &index, Range::Bounded { offset, limit }, max_bytes) else {
            return;
        };
        assert!(page.content.len() <= max_bytes);
        next = page.next_offset;
        assert!(next.is_none_or(|next| next > offset), "a page without progress");
    }
}
