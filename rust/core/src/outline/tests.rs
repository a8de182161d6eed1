use super::*;
use crate::error::ErrorKind;
use proptest::prelude::*;

#[test]
fn look() {
    for name in ["twitter", "citm_catalog", "canada", "twitterescaped"] {
        let data = std::fs::read(format!("/work/shared/corpus/real/{name}.json")).unwrap();
        for budget in [8, 128, 512, 2048, 1 << 20] {
            let text = outline(&data, budget).unwrap();
            println!("--- {name} {budget} {}\n{text}", text.len());
        }
    }
}
