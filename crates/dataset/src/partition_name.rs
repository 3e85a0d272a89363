//! Names of services, hosts, dates and labels that are safe as names of folders on every file system and engine.
use anyhow::ensure;

const MOST: usize = 128;

/// A name that can stand in `service=NAME/`.
pub fn check(what: &str, name: &str) -> anyhow::Result<()> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    ensure!(
        !name.is_empty() && name.len() <= MOST && name.chars().all(is_plain) && !name.starts_with('.'),
        "the {what} `{name}` must have letters, digits, `.`, `_` and `-` only, at most {MOST}, and not begin with `.`"
    );
    Ok(())
}

/// A date as 2026-11-18.
pub fn check_date(date: &str) -> anyhow::Result<()> {
    let parts: Vec<&str> = date.split('-').collect();
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let is_date = match parts.as_slice() {
        [year, month, day] if year.len() == 4 && month.len() == 2 && day.len() == 2 => {
            number(year).is_some()
                && number(month).is_some_and(|month| (1..=12).contains(&month))
                && number(day).is_some_and(|day| (1..=31).contains(&day))
        }
        _ => false,
    };
    ensure!(
        is_date && days(date).is_some_and(|number| date_of(number) == date),
        "`{date}` is no date such as 2026-11-18"
    );
    Ok(())
}

/// The date of a number of days since 1970-01-01, by the usual calendar (Howard Hinnant's algorithm).
pub fn date_of(days: i64) -> String {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The number of days since 1970-01-01 of a date.
pub fn days(date: &str) -> Option<i64> {
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    Some(era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days_are_inverse() {
        for (number, date) in
            [(0, "1970-01-01"), (19_782, "2024-02-29"), (20_775, "2026-11-18"), (11_016, "2000-02-29")]
        {
            assert_eq!((date_of(number).as_str(), days(date)), (date, Some(number)));
        }
        assert!((0..60_000).all(|number| days(&date_of(number)) == Some(number)));
    }

    #[test]
    fn names_that_would_change_a_path_are_refused() {
        for name in ["", "a/b", "..", ".x", "a=b", "ä", "a b", "a%20b"] {
            assert!(check("service", name).is_err(), "{name}");
        }
        for name in ["web", "4e1234567890", "db-1.eu_west"] {
            check("host", name).unwrap();
        }
        for date in ["2026-02-30", "2026-13-01", "26-1-1", "2026-1-01", "heute", "+026-01-01"] {
            assert!(check_date(date).is_err(), "{date}");
        }
        check_date("2028-02-29").unwrap();
    }
}
