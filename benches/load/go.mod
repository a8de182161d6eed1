module forebay/load

go 1.24
