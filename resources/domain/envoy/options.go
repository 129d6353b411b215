// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import "strings"

// Options are those of a translation beside its model.
type Options struct {
	Service          Name   // that leads to the listener; its name is shortened
	SecretsNamespace string // where agents read copies of secrets
	// Copies gives the copies their names, the plain ones if it is nil. It is asked about each object of each model, and what is translated again if it has
	// another name than before.
	Copies CopyNames
	// OneLabelWildcards has *.example.com stand for one label, as in an Ingress.
	OneLabelWildcards bool
	// Owners has hosts belong to the namespaces of the oldest objects that name them (ENV-33). Host names are those of listeners, and
	// matches of routes are paths then.
	Owners bool
	// FirstWins has the first of the routes for the same requests take them alone; without, backends are joined.
	FirstWins bool
	// ByAge has the routes of a host be those of the older objects first: an expression for paths goes after the prefixes, and the expressions, of the
	// namespaces whose routes there begin before (GW-62).
	ByAge bool
	// PortHosts has the routes of a port be those of no other: if there are several ports for plain HTTP, or for HTTPS, they are
	// told apart by the port in Host.
	PortHosts bool
	// PerPort has listeners of their own for ports whose TLS connections are others' than those of another port (ENV-39): agents have to
	// know several listeners of a Service.
	PerPort bool
	// RedirectsByScheme has a redirect to a scheme be for requests that came by another one, as X-Forwarded-Proto has it (ENV-43).
	RedirectsByScheme bool
	// NoGRPCWeb has requests of gRPC-Web sent on as they are.
	NoGRPCWeb bool
	// HostsOfTCP has the statistics of TLS that is passed through named after its hosts, in place of its first backend (ENV-44).
	HostsOfTCP bool
	// AlsoPort is a port of the Service that leads to the listener whatever the model has, 0 for none.
	AlsoPort          int
	ALPN              bool
	ProxyProtocol     bool
	AppProtocol       bool // backends say which version of HTTP they speak
	XFFNumTrustedHops uint32
	HostNetwork       *HostNetwork // nil: agents choose the address of the listener
	// MostProgram is how many instructions the program of a regular expression of a route has at most, 0 for the bound of RE2. Those of routes that are Checked have been.
	MostProgram int64
	// Checked says that all routes which are not Refused have passed [Route.Check]: they are not checked once more for each host.
	Checked bool
	// Await is called before each host or filter chain that is translated anew, with about how many bytes of memory all that is translated anew needs up to it. Its error
	// ends the translation. Nil does not wait.
	Await func(bytes int) error
	Connections

	auths auths // of the model
}

// CopyNames gives the copies of Secrets and of ConfigMaps their names.
type CopyNames interface {
	SecretCopy(of Name) string
	ConfigMapCopy(of Name) string
}

// secretName is the name by which agents offer the copy of a Secret.
func (o Options) secretName(s Name) string {
	if o.Copies != nil {
		return o.SecretsNamespace + "/" + o.Copies.SecretCopy(s)
	}
	return o.SecretsNamespace + "/" + SecretCopy(s)
}

// copiesText is the names of the copies of Secrets: what names them is another one if these are.
func (o Options) copiesText(secrets []Name) string {
	var b strings.Builder
	for _, s := range secrets {
		b.WriteString(o.secretName(s))
		b.WriteByte('\n')
	}
	return b.String()
}

// authorityName is the name by which agents offer the copy of a ConfigMap.
func (o Options) authorityName(s Name) string {
	if o.Copies != nil {
		return o.SecretsNamespace + "/" + o.Copies.ConfigMapCopy(s)
	}
	return o.SecretsNamespace + "/" + ConfigMapCopy(s)
}

// HostNetwork has a listener on addresses of nodes.
type HostNetwork struct {
	IPv4, IPv6   bool
	NodeSelector map[string]string // nil for all nodes
}

func (h HostNetwork) addresses() (all []string) {
	if h.IPv4 {
		all = append(all, "0.0.0.0")
	}
	if h.IPv6 {
		all = append(all, "::")
	}
	return all
}

// ParseNodeSelector returns the labels of a text such as a=b,c=d, without the items that have another form.
func ParseNodeSelector(text string) map[string]string {
	var found map[string]string
	for item := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(item, "=")
		if key = strings.TrimSpace(key); !ok || key == "" || strings.Contains(value, "=") {
			continue
		}
		if found == nil {
			found = map[string]string{}
		}
		found[key] = strings.TrimSpace(value)
	}
	return found
}
