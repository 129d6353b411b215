module github.com/skep-operator/skep/cmd/cloudsim

go 1.26.0

require github.com/skep-operator/skep v0.0.0

replace github.com/skep-operator/skep => ../..
