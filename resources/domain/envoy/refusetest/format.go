// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package refusetest

import (
	"fmt"
	"regexp"
	"strings"
)

// command is a command of Envoy between percent signs, with its argument and a length.
var command = regexp.MustCompile(`^%([A-Z0-9_]+)(?:\(([^)]*)\))?(?::([0-9]{1,9}))?%`)

// bare are commands that every version of Envoy knows for headers, and that have no argument.
var bare = map[string]bool{
	"DOWNSTREAM_REMOTE_ADDRESS": true, "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT": true, "DOWNSTREAM_DIRECT_REMOTE_ADDRESS": true,
	"DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT": true, "DOWNSTREAM_LOCAL_ADDRESS": true, "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT": true,
	"DOWNSTREAM_LOCAL_PORT": true, "DOWNSTREAM_LOCAL_URI_SAN": true, "DOWNSTREAM_LOCAL_SUBJECT": true, "DOWNSTREAM_PEER_URI_SAN": true,
	"DOWNSTREAM_PEER_SUBJECT": true, "DOWNSTREAM_PEER_ISSUER": true, "DOWNSTREAM_PEER_FINGERPRINT_256": true, "DOWNSTREAM_PEER_SERIAL": true,
	"DOWNSTREAM_PEER_CERT": true, "DOWNSTREAM_TLS_SESSION_ID": true, "DOWNSTREAM_TLS_CIPHER": true, "DOWNSTREAM_TLS_VERSION": true,
	"HOSTNAME": true, "PROTOCOL": true, "REQUESTED_SERVER_NAME": true, "RESPONSE_CODE": true, "RESPONSE_CODE_DETAILS": true,
	"RESPONSE_FLAGS": true, "START_TIME": true, "UPSTREAM_REMOTE_ADDRESS": true, "VIRTUAL_CLUSTER_NAME": true,
}

// checkFormat returns why Envoy cannot read the value of a header.
func checkFormat(value string) error {
	for rest := value; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return nil
		}
		if strings.HasPrefix(after, "%") {
			rest = after[1:]
			continue
		}
		m := command.FindStringSubmatch("%" + after)
		if m == nil {
			return fmt.Errorf("a percent sign of the value %.300q begins no command", value)
		}
		if err := checkCommand(m[1], m[2], m[3], len(m[0]) > len(m[1])+2); err != nil {
			return fmt.Errorf("the value %.300q: %w", value, err)
		}
		rest = after[len(m[0])-1:]
	}
}

// checkCommand returns why Envoy refuses a command.
func checkCommand(name, argument, length string, more bool) error {
	switch {
	case name == "REQ":
		first, second, alternative := strings.Cut(argument, "?")
		if first == "" || alternative && second == "" || strings.Contains(second, "?") || length != "" && strings.Trim(length, "0") == "" {
			return fmt.Errorf("the command REQ has the argument %q", argument)
		}
	case !bare[name]:
		return fmt.Errorf("the command %s is none of headers", name)
	case more:
		return fmt.Errorf("the command %s has an argument or a length", name)
	}
	return nil
}
