//! Enums whose variants have names in queries, on the command line and in answers.

/// Makes the enum and its tables from one list of variants and names.
macro_rules! named_enum {
    ($(#[$meta:meta])* pub enum $type:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$doc])* $variant,)*
        }

        impl $type {
            pub const VALUES: [$type; [$($name),*].len()] = [$($type::$variant),*];
            /// The values with their names.
            pub const ALL: [(&'static str, $type); Self::VALUES.len()] = [$(($name, $type::$variant)),*];

            pub fn parse(name: &str) -> Option<$type> {
                Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
            }

            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }
    };
}

pub(crate) use named_enum;
