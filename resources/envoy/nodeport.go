// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

// componentPorts are those of the nodes on which components of the cluster listen: Envoy would share them, and connections be divided.
var componentPorts = map[uint32]string{
	2379: "etcd", 2380: "etcd", 2381: "etcd",
	6443:  "the API server",
	10248: "the kubelet", 10250: "the kubelet", 10255: "the kubelet", 10256: "kube-proxy",
	10257: "the controller manager", 10259: "the scheduler",
	4240: "agents", 4244: "agents", 4250: "agents", 4251: "agents", 9878: "agents", 9879: "agents", 9890: "agents", 9901: "agents", 9962: "agents", 9964: "agents", 9965: "agents",
	9234: "this operator", 9891: "this operator", 9963: "this operator",
}

// ComponentAt returns the component of the cluster that listens at a port of the nodes, "" for none. No Ingress and no Gateway gets such a
// port (ING-25, GW-55).
func ComponentAt(port uint32) string { return componentPorts[port] }
