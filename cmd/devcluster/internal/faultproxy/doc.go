// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package faultproxy stands between clients and one server and breaks what they
// say to each other on demand: the project's one fault tool.
//
// Every proxy forwards TCP and can delay, hole, throttle, cut and refuse. In
// front of an API server it also ends TLS and speaks HTTP/2 on both sides, so
// that rules can answer, delay and lose single requests and hold or cut single
// watches. The shapes are those of resources/clustertest/control.
//
// Nothing here may import k8s.io/kubernetes: the package's tests stay cheap.
package faultproxy
