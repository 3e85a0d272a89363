fn main() {
    let lines = std::env::args().nth(1).and_then(|number| number.parse().ok()).unwrap_or(10);
    println!("{} words", words::count(lines));
}
