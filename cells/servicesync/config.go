// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

// Config is options that decide what is exported; all but the first are those of agents.
type Config struct {
	EnableK8sEndpointSlice       bool `flag:"enable-k8s-endpoint-slice" usage:"Backends are read of EndpointSlices. They are in any case: false, which made the original read Endpoints, is a warning at the start"`
	EnableK8sTerminatingEndpoint bool `flag:"enable-k8s-terminating-endpoint" usage:"Endpoints that are not ready count while they are serving" hidden:"true"`
}
