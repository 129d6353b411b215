module github.com/skep-operator/skep/cmd/cloudsim

go 1.26.0

require (
	github.com/skep-operator/skep v0.0.0
	k8s.io/client-go v0.36.3
)

require (
	github.com/Azure/azure-sdk-for-go/sdk/azcore v1.21.0 // indirect
	github.com/Azure/azure-sdk-for-go/sdk/internal v1.11.2 // indirect
	github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7 v7.3.0 // indirect
	github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v8 v8.0.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/net v0.55.0 // indirect
	golang.org/x/text v0.37.0 // indirect
	k8s.io/utils v0.0.0-20260319190234-28399d86e0b5 // indirect
)

replace github.com/skep-operator/skep => ../..
