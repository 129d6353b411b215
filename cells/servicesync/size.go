// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// What a value goes without where it would be larger than etcd takes (SSYNC-21): an EndpointSlice has so many addresses and ports that all of
// them with all of these would be a thousand times that, and a Service has ports, labels and a selector of a megabyte.
const (
	mostLabels        = 128 << 10 // of labels and selector
	mostFrontendPorts = 160 << 10 // of one of two addresses
)

// beyond is what is left out of a value for its size.
type beyond struct {
	backends  int  // addresses
	hostnames int  // of addresses that are backends
	zones     int  // of these
	ports     int  // of the frontends
	labels    bool // and the selector
}

func (b beyond) some() bool { return b != beyond{} }

// kinds is which kinds of parts are left out.
func (b beyond) kinds() [5]bool {
	return [...]bool{b.backends > 0, b.hostnames > 0, b.zones > 0, b.ports > 0, b.labels}
}

// text is what other clusters do not see, "" for nothing.
func (b beyond) text() string {
	var parts []string
	if b.backends > 0 {
		parts = append(parts, fmt.Sprintf("%d backends", b.backends))
	}
	if b.hostnames > 0 {
		parts = append(parts, fmt.Sprintf("%d hostnames", b.hostnames))
	}
	if b.zones > 0 {
		parts = append(parts, fmt.Sprintf("%d zones", b.zones))
	}
	if b.ports > 0 {
		parts = append(parts, fmt.Sprintf("%d ports", b.ports))
	}
	if b.labels {
		parts = append(parts, "its labels and selector")
	}
	if len(parts) == 0 {
		return ""
	}
	return "other clusters do not see " + strings.Join(parts, ", nor ")
}

// How long parts of a value are as JSON. Names of ports have no character that is escaped.

func sizeOfPort(name, protocol string, port int32) int {
	return len(`"":{"Protocol":"","Port":},`) + len(name) + len(protocol) + len(strconv.Itoa(int(port)))
}

func sizeOfBackend(ip string) int { return len(`"":{},`) + len(ip) }

// sizeOfEntry is how long what is known of a backend is.
func sizeOfEntry(ip string, value any) int { return len(`"":,`) + len(ip) + sizeOf(value) }

// sizeOf is how long strings, and maps of them, are.
func sizeOf(value any) int {
	text, _ := json.Marshal(value)
	return len(text)
}
