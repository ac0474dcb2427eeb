//! Names, numbers and layouts of AMD's C interfaces, generated from api/*.json; no logic.
