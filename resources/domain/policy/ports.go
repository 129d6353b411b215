// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

const (
	textTooManyPorts  = "too many ports, the max is 40"
	textNoPort        = "Port must be specified"
	textL7PortZero    = "L7 rules can not be used when a port is 0"
	textDNSRange      = "DNS rules do not support port ranges"
	textDNSNoPort     = "Port 53 must be specified for DNS rules"
	textServerNamesL7 = "ServerNames are not allowed with L7 rules without TLS termination"
	textServerName    = "Empty server name is not allowed"
)

// checkPorts checks an entry of toPorts.
func checkPorts(r *v2.PortRule, ingress bool) string {
	if len(r.Ports) > maxElements {
		return textTooManyPorts
	}
	for _, p := range r.Ports {
		if text := checkPort(p, r.Rules); text != "" {
			return text
		}
	}
	if r.Rules != nil && r.Rules.DNS != nil && len(r.Ports) == 0 {
		return textDNSNoPort
	}
	if text := checkTLS(r); text != "" {
		return text
	}
	if text := checkListener(r, ingress); text != "" {
		return text
	}
	return checkL7(r.Rules)
}

// maxServiceName is the most letters of a service name, of RFC 6335.
const maxServiceName = 15

var serviceName = regexp.MustCompile(`^([a-zA-Z0-9]-?)*[a-zA-Z](-?[a-zA-Z0-9])*$`)

func isServiceName(text string) bool {
	return len(text) <= maxServiceName && serviceName.MatchString(text)
}

func checkPort(p v2.PortProtocol, rules *v2.L7Rules) string {
	if p.Port == "" {
		return textNoPort
	}
	number, err := strconv.ParseUint(p.Port, 10, 16)
	named := isServiceName(p.Port)
	if err != nil && !named {
		return fmt.Sprintf("Unable to parse port: %v", err)
	}
	protocol := strings.ToUpper(string(p.Protocol))
	switch v2.L4Protocol(protocol) {
	case "":
		protocol = string(v2.ProtocolAny)
	case v2.ProtocolTCP, v2.ProtocolUDP, v2.ProtocolSCTP, v2.ProtocolAny:
	default:
		return fmt.Sprintf("invalid protocol %q, must be { tcp | udp | sctp | any }", p.Protocol)
	}
	if !hasL7(rules) {
		return ""
	}
	switch {
	case number == 0 && !named:
		return textL7PortZero
	case rules.DNS == nil && protocol != string(v2.ProtocolTCP):
		return fmt.Sprintf("L7 rules can only apply to TCP (not %s) except for DNS rules", protocol)
	case rules.DNS != nil && uint64(max(0, p.EndPort)) > number:
		return textDNSRange
	}
	return ""
}

func checkTLS(r *v2.PortRule) string {
	switch {
	case len(r.ServerNames) > 0 && hasL7(r.Rules) && r.TerminatingTLS == nil:
		return textServerNamesL7
	case slices.Contains(r.ServerNames, ""):
		return textServerName
	}
	return ""
}

func checkListener(r *v2.PortRule, ingress bool) string {
	switch {
	case r.Listener == nil:
		return ""
	case ingress:
		return fmt.Sprintf("Listener is not allowed on ingress (%s)", r.Listener.Name)
	case hasL7(r.Rules):
		return fmt.Sprintf("Listener is not allowed with L7 rules (%s)", r.Listener.Name)
	}
	return ""
}
