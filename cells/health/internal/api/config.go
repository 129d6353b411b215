// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api

import (
	"net"
	"slices"
	"strings"

	"github.com/skep-operator/skep/runtime/cell"
)

// DefaultAddress is the default of --operator-api-serve-addr.
const DefaultAddress = "localhost:9234"

// Config is the options of the health API.
type Config struct {
	OperatorAPIServeAddr             string   `flag:"operator-api-serve-addr" usage:"Address of the health API; if empty, free ports on 127.0.0.1 and ::1"`
	EnableCiliumOperatorServerAccess []string `flag:"enable-cilium-operator-server-access" usage:"Endpoints of the health API that are served: GetHealthz, GetMetrics, GetCluster; a trailing * is a wildcard"`
}

// MetricsEnabled is --enable-metrics.
type MetricsEnabled bool

// endpoints are those of the health API to which access can be restricted.
var endpoints = []string{"GetHealthz", "GetMetrics", "GetCluster"}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	for _, pattern := range c.EnableCiliumOperatorServerAccess {
		if !slices.ContainsFunc(endpoints, func(name string) bool { return accessMatches(pattern, name) }) {
			return cell.Invalid("enable-cilium-operator-server-access", "must name parts of the API (%v), or several with a * at the end; %q is none", endpoints, pattern)
		}
	}
	if _, _, err := net.SplitHostPort(c.OperatorAPIServeAddr); c.OperatorAPIServeAddr != "" && err != nil {
		return cell.Invalid("operator-api-serve-addr", "must be host:port: %v", err)
	}
	return nil
}

// allowed reports whether an endpoint is served.
func (c Config) allowed(name string) bool {
	return slices.ContainsFunc(c.EnableCiliumOperatorServerAccess, func(p string) bool { return accessMatches(p, name) })
}

// accessMatches reports whether a pattern is a name, or a prefix of it with a * at the end.
func accessMatches(pattern, name string) bool {
	if prefix, wildcard := strings.CutSuffix(pattern, "*"); wildcard {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}
