// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package policy

import (
	"cmp"
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

	textNoPortPossible = "port must be empty or 0"
)

func (k *check) checkPorts(r *v2.PortRule, ingress bool) {
	if len(r.Ports) > maxElements {
		k.add(Always, textTooManyPorts)
	}
	for _, p := range r.Ports {
		if k.done() {
			return
		}
		k.checkPort(p, r.Rules)
	}
	if r.Rules != nil && r.Rules.DNS != nil && len(r.Ports) == 0 {
		k.add(Always, k.text(textDNSNoPort))
	}
	k.addText(k.checkTLS(r))
	k.addText(k.checkListener(r, ingress))
	k.addText(k.checkL7(r.Rules))
}

// maxServiceName is the most letters of a service name, of RFC 6335.
const maxServiceName = 15

var serviceName = regexp.MustCompile(`^([a-zA-Z0-9]-?)*[a-zA-Z](-?[a-zA-Z0-9])*$`)

func isServiceName(text string) bool {
	return len(text) <= maxServiceName && serviceName.MatchString(text)
}

func (k *check) checkPort(p v2.PortProtocol, rules *v2.L7Rules) {
	var number uint64
	named := false
	switch {
	case p.Port == "" && k.EmptyPorts:
		k.add(EmptyPorts, k.text(textNoPort))
	case p.Port == "":
		k.add(Always, textNoPort)
		return
	default:
		var err error
		number, err = strconv.ParseUint(p.Port, 10, 16)
		if named = isServiceName(p.Port); err != nil && !named {
			k.add(Always, k.text(fmt.Sprintf("Unable to parse port: %v", err)))
			return
		}
	}
	protocol := cmp.Or(strings.ToUpper(string(p.Protocol)), string(v2.ProtocolAny))
	if !k.has(protocol) {
		k.add(Always, fmt.Sprintf("invalid protocol %q, must be { %s }", p.Protocol, k.Protocols))
		return
	}
	switch v2.L4Protocol(protocol) {
	case v2.ProtocolTCP, v2.ProtocolUDP, v2.ProtocolSCTP, v2.ProtocolAny:
	default:
		if number != 0 || named {
			k.add(Always, textNoPortPossible)
		}
	}
	if !k.hasL7(rules) {
		return
	}
	switch {
	case number == 0 && !named:
		k.add(Always, textL7PortZero)
	case rules.DNS == nil && protocol != string(v2.ProtocolTCP):
		k.add(Always, fmt.Sprintf("L7 rules can only apply to TCP (not %s) except for DNS rules", protocol))
	case rules.DNS != nil && uint64(max(0, p.EndPort)) > number:
		k.add(Always, textDNSRange)
	}
}

func (k *check) checkTLS(r *v2.PortRule) string {
	switch {
	case len(r.ServerNames) > 0 && k.hasL7(r.Rules) && r.TerminatingTLS == nil:
		return textServerNamesL7
	case slices.Contains(r.ServerNames, ""):
		return k.text(textServerName)
	}
	return ""
}

func (k *check) checkListener(r *v2.PortRule, ingress bool) string {
	switch {
	case r.Listener == nil:
		return ""
	case ingress:
		return fmt.Sprintf("Listener is not allowed on ingress (%s)", r.Listener.Name)
	case k.hasL7(r.Rules):
		return fmt.Sprintf("Listener is not allowed with L7 rules (%s)", r.Listener.Name)
	}
	return ""
}
