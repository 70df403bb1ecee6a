module callgate

go 1.22
