# shellcheck shell=bash disable=SC2154 # the caller's variables
# For scripts/quickstart --pods: Convoke installed as users install it, in a pod of the local cluster with a node.
# Needs common.sh, and from the caller $operator_namespace and $namespace.

# In the cluster the registry has this name; for this machine it is an address.
REGISTRY_NAME=registry.$operator_namespace.svc:5000

# A model that pods reach, and where the example repository names one that is made up.
MODEL_URL=http://scripted-model.$operator_namespace.svc:8000/v1
MODEL_FILE=models/shared-model.yaml
TOOLS_FILE=agents/researcher.yaml

# ready_field NAME: one of what the local cluster said when it was ready.
ready_field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$STATE/cluster/ready" "$1"; }

# Builds the images that are missing and pushes them; sets image[NAME] to references by digest.
images=(convoke agent proxy python node packages)
declare -A image=()
# How the operator comes to its rights. Tests have namespaces that give them.
operator_options=(--single-tenant)
provide_images() {
	step "images: ${images[*]}"
	local name reference
	# In the foreground, so that Ctrl-C reaches the builders.
	"$ROOT/scripts/images" push "${images[@]}" >"$STATE/images.out" || die "the images were not built, see above" 3
	while IFS='=' read -r name reference; do
		image[$name]=$reference
	done <"$STATE/images.out"
}

# Applies deploy/ with the image and the options of this cluster.
install_operator() {
	local folder=$STATE/install name=${image[convoke]%@*} arguments
	arguments=$(printf '      - %s\n' operator --controllers=all --allow-insecure-git --leader-elect=false "${operator_options[@]}" \
		"--internal-registry=$REGISTRY_NAME" "--default-agent-image=${image[agent]}" \
		"--default-proxy-image=${image[proxy]}" "--default-python-image=${image[python]}" \
		"--default-node-image=${image[node]}" "--npm-registry=http://packages.$operator_namespace.svc:8080/npm" \
		"--pypi-index=http://packages.$operator_namespace.svc:8080/simple/")
	mkdir -p "$folder"
	cat >"$folder/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- $(realpath --relative-to="$(realpath "$folder")" "$ROOT/deploy")
images:
- name: ghcr.io/convoke-dev/convoke
  newName: $name
  digest: ${image[convoke]#*@}
patches:
- target: {kind: Deployment, name: convoke}
  patch: |-
    - op: replace
      path: /spec/template/spec/containers/0/args
      value:
$arguments
YAML
	kubectl apply --server-side --force-conflicts --kustomize "$folder" >/dev/null
	[[ ${operator_options[*]} != *--single-tenant* ]] ||
		kubectl apply --server-side --force-conflicts -f "$ROOT/deploy/single-tenant.yaml" >/dev/null
	sed "s|IMAGE\$|${image[packages]}|" "$ROOT/scripts/lib/images/packages/packages.yaml" |
		kubectl apply --server-side --force-conflicts -f - >/dev/null
	apply_scripted_model
	local crds
	mapfile -t crds < <(kubectl get crds -o name | grep '\.convoke\.dev$')
	kubectl wait --for=condition=Established --timeout=30s "${crds[@]}" >/dev/null
}

# The model that says what a script tells it to.
apply_scripted_model() {
	local program=$ROOT/runtime/tests/scripted_model.py script=$ROOT/scripts/lib/scripted_model.json hash
	hash=$(cat "$program" "$script" | sha256sum | cut -c1-12)
	kubectl create configmap scripted-model --namespace "$operator_namespace" --from-file=scripted_model.py="$program" \
		--from-file=script.json="$script" --dry-run=client -o json | kubectl apply --server-side --force-conflicts -f - >/dev/null
	sed -e "s|IMAGE\$|${image[python]}|" -e "s|SCRIPT\$|\"$hash\"|" "$ROOT/scripts/lib/scripted_model.yaml" |
		kubectl apply --server-side --force-conflicts -f - >/dev/null
}

# use_scripted_model FOLDER: the agents of a new repository ask it, and the one that is asked has a tool.
use_scripted_model() {
	local file=$1/$MODEL_FILE tools=$1/$TOOLS_FILE
	sed -i "s|^    url: https://models\.example\.com/v1\$|    # The scripted model of the quick start.\n    url: $MODEL_URL|" "$file"
	grep -q "$MODEL_URL" "$file" || die "examples-repo/$sync_path/$MODEL_FILE has no address to replace"
	sed -i 's|^  # mcpServers:$|  mcpServers:|; s|^  #   - web-search$|    # For the scripted model of the quick start.\n    - text-tools|' "$tools"
	grep -q '^    - text-tools$' "$tools" || die "examples-repo/$sync_path/$TOOLS_FILE has no tools to replace"
}

# Asks an agent of the example; sets $conversation to what one sees, or $unasked to why there is nothing to see. A repository of
# an earlier start may have another model: nobody is asked then.
conversation="" unasked=""
ask_an_agent() {
	local question="Does it work?" url said
	url=$(kubectl get modelapi shared-model --namespace "$namespace" --ignore-not-found -o 'jsonpath={.spec.external.url}')
	if [[ $url != "$MODEL_URL" ]]; then
		unasked="No agent was asked: ModelAPI shared-model of this repository has another address than the scripted model, $MODEL_URL."
		return
	fi
	step "asking an agent"
	kubectl rollout status --namespace "$operator_namespace" deployment/scripted-model --timeout=90s >/dev/null ||
		die "the scripted model did not become ready within 90 s" 3
	if said=$("$convoke" ask --namespace "$namespace" agent/researcher "$question" 2>&1); then
		printf -v conversation 'convoke ask agent/researcher "%s"\n%s' "$question" "$said"
	else
		unasked="Agent researcher gave no answer: $said"
	fi
}

show_conversation() {
	if [[ -z $conversation ]]; then
		printf '\n%s\n' "$unasked"
		return
	fi
	printf '\n%s\n\n' "An agent was asked. Its model is a script, scripts/lib/scripted_model.json:"
	local line
	while IFS= read -r line; do printf '  %s\n' "$line"; done <<<"$conversation"
}

# The example's ModelAPI `openai` reads its provider's key from a Secret of the team. This one is no key: the provider refuses it.
provide_secret() {
	kubectl create secret generic openai-key --namespace "$namespace" --from-literal=api-key=none --dry-run=client -o json |
		kubectl apply --server-side -f - >/dev/null
	# Pods read no other.
	kubectl label --overwrite --namespace "$namespace" secret/openai-key convoke.dev/agents=allow >/dev/null
}

# Waits until the operator's pod is ready, and says why it is not.
operator_is_ready() {
	kubectl rollout status --namespace "$operator_namespace" deployment/convoke --timeout=90s >/dev/null && return
	kubectl get pods --namespace "$operator_namespace" --output wide >&2 || true
	operator_log >&2
	die "the operator's pod did not become ready within 90 s" 3
}

operator_log() { kubectl logs --namespace "$operator_namespace" deployment/convoke --tail=30; }

# Waits until all agents are Ready, and says which are not.
agents_are_ready() {
	kubectl wait --for=condition=Ready agents --all --namespace "$namespace" --timeout="$1s" >/dev/null 2>&1 && return
	kubectl get agents,modelapis,mcpservers,pods --namespace "$namespace" >&2
	die "not all agents became Ready within $1 s" 3
}
